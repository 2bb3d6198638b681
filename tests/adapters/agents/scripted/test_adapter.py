"""The scripted agent follows its script with confined and bounded tools, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest

from proctor.adapters import ScriptedAdapter
from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.adapter_fixture import Drive, Driven

pytestmark = pytest.mark.anyio

HELLO = """
steps:
  - say: Looking at it.
    stream: true
  - usage: {input_tokens: 10, output_tokens: 5, cost_usd: 0.01}
  - call: write
    input: {path: notes/a.txt, content: hello}
  - call: bash
    input: {command: cat notes/a.txt}
  - say: Done.
"""


async def play(script: Any, *, tools: Any = None, gated: bool = True, workspace: Any = None, **gate: Any) -> Driven:
    adapter = ScriptedAdapter(script, tools=tools, gated=gated, workspace=workspace)
    return await Drive(adapter, **gate).run()


async def test_a_script_runs_in_order(tmp_path: Path) -> None:
    """Text, usage and calls are reported as written, with the gate asked between them; the last text is the output.
    Streamed text equals the message. A command really runs, and sees the file that the previous call wrote.
    """
    done = await play(HELLO, workspace=tmp_path)

    assert [item.name if isinstance(item, ToolCall) else item.type for item in done.log] == [
        *("turn_started", *["message_streamed"] * 3, "message_received", "token_usage_updated"),
        *("write", "tool_call_completed", "turn_completed"),
        *("turn_started", "bash", "tool_call_completed", "turn_completed"),
        *("turn_started", "message_received", "turn_completed", "run_completed"),
    ]
    assert [call.turn for call in done.proposed] == [1, 2]
    assert done.events[-1] == ev.RunCompleted(output="Done.")
    pieces = "".join(event.delta for event in done.events if isinstance(event, ev.MessageStreamed))
    message = next(event for event in done.events if isinstance(event, ev.MessageReceived))
    assert pieces == message.content == "Looking at it."
    assert (tmp_path / "notes" / "a.txt").read_text() == "hello"
    assert done.outcomes("call-2") == [
        ev.ToolCallCompleted(tool_call_id="call-2", tool_name="bash", tool_output={"exit_code": 0, "stdout": "hello"})
    ]


async def test_a_failing_agent_reports_its_failure_last() -> None:
    """`fail` ends the run with its message."""
    done = await play("steps:\n  - say: a\n  - fail: out of credit\n  - say: b")

    assert done.events[-1] == ev.RunFailed(error={"code": "scripted_failure", "message": "out of credit"})
    assert [event.content for event in done.events if isinstance(event, ev.MessageReceived)] == ["a"]


async def test_every_other_step_is_an_event() -> None:
    """User messages, thinking, an output that is not text, cumulative usage with its own model."""
    script = """
    model: m-1
    files: {in/a.txt: text}
    steps:
      - user: go on
      - think: hm
      - usage: {scope: cumulative, input_tokens: 7, model: m-2}
      - {call: read, input: {path: in/a.txt}}
      - output: {answer: 42}
    """
    done = await play(script)

    assert done.types[:3] == ["message_sent", "turn_started", "message_received"]
    usage = next(event for event in done.events if isinstance(event, ev.TokenUsageUpdated))
    assert (usage.scope, usage.input_tokens, usage.model) == ("cumulative", 7, "m-2")
    assert getattr(done.outcomes("call-1")[0], "tool_output", None) == "text"
    assert done.events[-1] == ev.RunCompleted(output={"answer": 42})


PARALLEL = """
steps:
  - parallel:
      - {call: one, id: a}
      - {call: two, id: b, if_denied: [{say: b was denied}]}
      - {call: three, id: c}
"""


async def test_parallel_calls_are_proposed_in_order_and_run_concurrently() -> None:
    """Each waits for the other, so both must run at once; all belong to one response."""
    arrived = {name: anyio.Event() for name in ("one", "three")}

    async def meet(me: str, other: str) -> str:
        arrived[me].set()
        await arrived[other].wait()
        return me

    async def one() -> str:
        return await meet("one", "three")

    async def three() -> str:
        return await meet("three", "one")

    done = await play(PARALLEL, tools={"one": one, "three": three}, refuse={"two"})

    assert [(call.id, call.turn) for call in done.proposed] == [("a", 1), ("b", 1), ("c", 1)]
    assert [len(done.outcomes(call_id)) for call_id in "abc"] == [1, 0, 1]
    assert done.events[-1] == ev.RunCompleted(output="b was denied")


async def test_a_pending_call_does_not_block_parallel_ones() -> None:
    """The first call waits for approval until the last one has run."""
    ran = anyio.Event()

    async def hold(call: ToolCall) -> GateAnswer:
        if call.id == "a":
            await ran.wait()
        return GateAnswer(allowed=True)

    async def three() -> None:
        ran.set()

    done = await play(PARALLEL, tools={"one": str, "two": str, "three": three}, answer=hold)

    assert all(done.outcomes(call_id) for call_id in "abc")


def boom(why: str) -> None:
    raise ValueError(why)


@pytest.mark.parametrize(("call", "error"), [
    ("{call: bash, input: {command: 'echo out; echo err >&2; exit 3'}}",
        {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}),
    ("{call: boom, input: {why: because}}", "ValueError: because"),
    ("{call: boom}", "bad input: missing a required argument: 'why'"),
    ("{call: nothing}", "no such tool: nothing"),
    ("{call: read, input: {path: ../../etc/passwd}}", "`../../etc/passwd` is outside the workspace"),
    ("{call: write, input: {path: /etc/x, content: x}}", "`/etc/x` is outside the workspace"),
])  # fmt: skip
async def test_a_call_that_fails_has_the_reason(call: str, error: object) -> None:
    """The failure is the call's outcome, not the run's."""
    done = await play(f"steps:\n  - {call}\n  - say: next", tools={"boom": boom})

    (outcome,) = done.outcomes("call-1")
    assert isinstance(outcome, ev.ToolCallFailed)
    assert outcome.error == error
    assert done.events[-1] == ev.RunCompleted(output="next")


async def test_a_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    """Confinement checks the real path."""
    script = "steps:\n  - {call: bash, input: {command: ln -s /etc out}}\n  - {call: read, input: {path: out/passwd}}"
    done = await play(script, workspace=tmp_path)

    (outcome,) = done.outcomes("call-2")
    assert isinstance(outcome, ev.ToolCallFailed)


async def test_output_is_bounded() -> None:
    """The rest is dropped, and the output says so."""
    done = await play("steps:\n  - {call: bash, input: {command: head -c 5000000 /dev/zero | tr '\\\\0' x}}")

    (outcome,) = done.outcomes("call-1")
    assert isinstance(outcome, ev.ToolCallCompleted)
    assert len(outcome.tool_output["stdout"]) == 64 * 1024
    assert outcome.tool_output["truncated"] is True


async def test_a_function_may_return_anything() -> None:
    """A value outside JSON is reported as text."""
    done = await play("steps:\n  - {call: make}", tools={"make": lambda: {"path": Path("/x"), 1: (2, 3)}})

    assert getattr(done.outcomes("call-1")[0], "tool_output", None) == {"path": "/x", "1": [2, 3]}


def running(command: str) -> bool:
    """Whether a process runs exactly this."""
    return any(" ".join(p.info["cmdline"] or []) == command for p in psutil.process_iter(["cmdline"]))


async def test_a_command_that_times_out_ends_with_its_children() -> None:
    """A timeout is a failure, and kills processes that ignore signals or left its session."""
    command = "trap '' TERM; setsid sleep 71001 & sleep 71001"
    done = await play(f'steps:\n  - {{call: bash, input: {{command: "{command}", timeout_s: 0.3}}}}')

    (outcome,) = done.outcomes("call-1")
    assert isinstance(outcome, ev.ToolCallFailed)
    assert outcome.error["timed_out"] is True
    assert not running("sleep 71001")


async def test_a_background_process_lives_on_and_ends_with_the_run() -> None:
    """It does not block its call, later calls can use it, and nothing of it remains."""
    script = """
    steps:
      - {call: bash, input: {command: "sleep 71002 & echo $!"}}
      - {call: bash, input: {command: "pgrep -f 'sleep 71002' >/dev/null || ps ax | grep -q '[s]leep 71002'"}}
    """
    done = await play(script)

    assert [event.type for event in done.events if "tool_call" in event.type] == ["tool_call_completed"] * 2
    assert not running("sleep 71002")


CANCEL_AT = {
    "in silence": ("steps:\n  - say: x\n  - silence: 100000", "message_received"),
    "while a function runs": ("steps:\n  - {call: wait}", "turn_started"),
    "between parallel calls": (
        "steps:\n  - parallel:\n      - {call: bash, input: {command: echo}}\n      - {call: wait}",
        "tool_call_completed",
    ),
}


@pytest.mark.parametrize("phase", CANCEL_AT)
async def test_cancelling_ends_the_stream(phase: str) -> None:
    """Whatever it is doing, the first cancel step ends it. A running call has an outcome."""
    script, moment = CANCEL_AT[phase]
    adapter = ScriptedAdapter(script, tools={"wait": anyio.sleep_forever})

    done = await Drive(adapter, cancel_when=lambda event: event.type == moment).run()

    assert done.steps_taken == ["interrupt"]
    assert done.error is None
    assert not any(isinstance(event, ev.RunCompleted | ev.RunFailed) for event in done.events)

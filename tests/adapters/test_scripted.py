"""The scripted agent: what it says it does, it does, and only what the gate allowed."""

from __future__ import annotations

import gzip
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest

from proctor.adapters import ScriptedAdapter
from proctor.policies.calls import ToolCall
from proctor.policies.events import (
    MessageReceived,
    MessageStreamed,
    RunCompleted,
    RunFailed,
    TokenUsageUpdated,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
)
from proctor.policies.model import Deny, Limits, Policy
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UsageError
from proctor.supervisor.ports import Adapter, GateAnswer, Launch
from proctor.supervisor.testing.driving import Drive, Driven

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
    """Run a script to its end."""
    adapter = ScriptedAdapter(script, tools=tools, gated=gated, workspace=workspace)
    return await Drive(adapter, **gate).run()


async def allow(call: ToolCall) -> GateAnswer:
    """A gate that lets everything through."""
    return GateAnswer(allowed=True)


def running(command: str) -> bool:
    """Whether a process runs exactly that."""
    return any(" ".join(p.info["cmdline"] or []) == command for p in psutil.process_iter(["cmdline"]))


def made_in(workspace: Path) -> list[str]:
    """The files that are there."""
    return [path.name for path in workspace.iterdir()]


@pytest.mark.anyio
async def test_a_script_is_played_in_its_order() -> None:
    """Text, usage and calls come as written; the gate is asked between them, and the last text is the output."""
    done = await play(HELLO)

    assert [item.name if isinstance(item, ToolCall) else item.type for item in done.log] == [
        "turn_started",
        *["message_streamed"] * 3,
        "message_received",
        "token_usage_updated",
        "write",
        "tool_call_completed",
        "turn_completed",
        "turn_started",
        "bash",
        "tool_call_completed",
        "turn_completed",
        "turn_started",
        "message_received",
        "turn_completed",
        "run_completed",
    ]
    assert [call.turn for call in done.asked] == [1, 2]
    assert done.events[-1] == RunCompleted(output="Done.")


@pytest.mark.anyio
async def test_streamed_pieces_make_up_the_text() -> None:
    """What is streamed is what is said."""
    done = await play(HELLO)

    pieces = "".join(event.delta for event in done.events if isinstance(event, MessageStreamed))
    said = next(event for event in done.events if isinstance(event, MessageReceived))
    assert pieces == said.content == "Looking at it."


@pytest.mark.anyio
async def test_commands_really_run(tmp_path: Path) -> None:
    """A shell command sees the file the call before it wrote, in the given workspace."""
    done = await play(HELLO, workspace=tmp_path)

    assert (tmp_path / "notes" / "a.txt").read_text() == "hello"
    assert done.outcomes("call-2") == [
        ToolCallCompleted(
            tool_call_id="call-2", tool_name="bash", tool_output={"exit_code": 0, "stdout": "hello"}
        )
    ]


@pytest.mark.anyio
async def test_a_refused_call_does_not_run_and_the_agent_can_react(tmp_path: Path) -> None:
    """No effect, no outcome; the steps under `if_denied` follow, others do not."""
    script = """
    steps:
      - call: bash
        input: {command: touch forbidden}
        if_denied: [{say: Then not.}]
        if_completed: [{say: Ha.}]
    """
    done = await play(script, workspace=tmp_path, refuse={"bash"})

    assert made_in(tmp_path) == []
    assert done.outcomes("call-1") == []
    assert done.events[-1] == RunCompleted(output="Then not.")


@pytest.mark.anyio
async def test_a_call_runs_only_after_the_gate_has_answered(tmp_path: Path) -> None:
    """While the gate holds the call, nothing of it has happened."""

    async def look(call: ToolCall) -> GateAnswer:
        await anyio.lowlevel.checkpoint()
        assert made_in(tmp_path) == []
        return GateAnswer(allowed=True)

    done = await play("steps:\n  - {call: bash, input: {command: touch made}}", workspace=tmp_path, answer=look)

    assert made_in(tmp_path) == ["made"]
    assert done.error is None


@pytest.mark.anyio
async def test_a_rewritten_input_is_the_one_that_runs(tmp_path: Path) -> None:
    """The gate's input replaces the one asked for."""

    async def rewrite(call: ToolCall) -> GateAnswer:
        return GateAnswer(allowed=True, input={"command": "touch safe"})

    await play("steps:\n  - {call: bash, input: {command: touch bad}}", workspace=tmp_path, answer=rewrite)

    assert made_in(tmp_path) == ["safe"]


PARALLEL = """
steps:
  - parallel:
      - {call: one, id: a}
      - {call: two, id: b, if_denied: [{say: b was denied}]}
      - {call: three, id: c}
"""


@pytest.mark.anyio
async def test_parallel_calls_are_asked_for_in_order_and_run_at_once() -> None:
    """Each waits for the other, so they must run side by side; all are of one response."""
    arrived = {name: anyio.Event() for name in ("one", "three")}

    async def meet(me: str, other: str) -> str:
        arrived[me].set()
        await arrived[other].wait()
        return me

    async def one() -> str:
        return await meet("one", "three")

    async def three() -> str:
        return await meet("three", "one")

    with anyio.fail_after(5):
        done = await play(PARALLEL, tools={"one": one, "three": three}, refuse={"two"})

    assert [(call.id, call.turn) for call in done.asked] == [("a", 1), ("b", 1), ("c", 1)]
    assert [len(done.outcomes(call_id)) for call_id in "abc"] == [1, 0, 1]
    assert done.events[-1] == RunCompleted(output="b was denied")


@pytest.mark.anyio
async def test_a_call_held_at_the_gate_does_not_hold_its_siblings() -> None:
    """The first call waits for a person until the last one has run."""
    ran = anyio.Event()

    async def hold(call: ToolCall) -> GateAnswer:
        if call.id == "a":
            await ran.wait()
        return GateAnswer(allowed=True)

    async def three() -> None:
        ran.set()

    with anyio.fail_after(5):
        done = await play(PARALLEL, tools={"one": str, "two": str, "three": three}, answer=hold)

    assert all(done.outcomes(call_id) for call_id in "abc")


@pytest.mark.anyio
async def test_an_agent_told_to_stop_asks_for_nothing_more() -> None:
    """After a refusal that stops, no step follows and no end is claimed."""
    done = await play("steps:\n  - {call: a}\n  - {call: b}\n  - say: still here", refuse={"a"}, stop=True)

    assert [call.name for call in done.asked] == ["a"]
    assert done.types == ["turn_started", "turn_completed"]


@pytest.mark.anyio
async def test_without_a_gate_calls_are_reported_and_run_at_once() -> None:
    """Ungated, the stream says that a call started before it says how it ended."""
    done = await play("steps:\n  - {call: bash, input: {command: echo hi}}", gated=False, refuse={"bash"})

    assert done.asked == []
    started = done.events[1]
    assert isinstance(started, ToolCallStarted)
    assert started.tool_input == {"command": "echo hi"}
    assert done.types[2] == "tool_call_completed"


def boom(why: str) -> None:
    """A tool that fails."""
    raise ValueError(why)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("{call: bash, input: {command: 'echo out; echo err >&2; exit 3'}}",
         {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}),
        ("{call: boom, input: {why: because}}", "ValueError: because"),
        ("{call: boom}", "bad input: missing a required argument: 'why'"),
        ("{call: nothing}", "no such tool: nothing"),
        ("{call: read, input: {path: ../../etc/passwd}}", "`../../etc/passwd` is outside the workspace"),
        ("{call: write, input: {path: /etc/x, content: x}}", "`/etc/x` is outside the workspace"),
    ],
)
async def test_a_call_that_fails_says_why(call: str, error: object) -> None:
    """The failure is the call's outcome, not the run's."""
    done = await play(f"steps:\n  - {call}\n  - say: next", tools={"boom": boom})

    (outcome,) = done.outcomes("call-1")
    assert isinstance(outcome, ToolCallFailed)
    assert outcome.error == error
    assert done.events[-1] == RunCompleted(output="next")


@pytest.mark.anyio
async def test_a_link_out_of_the_workspace_is_not_followed(tmp_path: Path) -> None:
    """Confinement looks at where a path really leads."""
    script = "steps:\n  - {call: bash, input: {command: ln -s /etc out}}\n  - {call: read, input: {path: out/passwd}}"
    done = await play(script, workspace=tmp_path)

    (outcome,) = done.outcomes("call-2")
    assert isinstance(outcome, ToolCallFailed)


@pytest.mark.anyio
async def test_output_is_bounded() -> None:
    """What is beyond the limit is dropped and said to be."""
    done = await play("steps:\n  - {call: bash, input: {command: head -c 5000000 /dev/zero | tr '\\\\0' x}}")

    (outcome,) = done.outcomes("call-1")
    assert isinstance(outcome, ToolCallCompleted)
    assert len(outcome.tool_output["stdout"]) == 64 * 1024
    assert outcome.tool_output["truncated"] is True


@pytest.mark.anyio
async def test_a_command_past_its_time_ends_with_its_children() -> None:
    """A timeout is a failure, and kills what ignores signals and left its session."""
    command = "trap '' TERM; setsid sleep 71001 & sleep 71001"
    done = await play(f'steps:\n  - {{call: bash, input: {{command: "{command}", timeout_s: 0.3}}}}')

    (outcome,) = done.outcomes("call-1")
    assert isinstance(outcome, ToolCallFailed)
    assert outcome.error["timed_out"] is True
    assert not running("sleep 71001")


@pytest.mark.anyio
async def test_a_background_process_lives_on_and_ends_with_the_run() -> None:
    """It does not hold its call, later calls can use it, and nothing of it is left."""
    script = """
    steps:
      - {call: bash, input: {command: "sleep 71002 & echo $!"}}
      - {call: bash, input: {command: "pgrep -f 'sleep 71002' >/dev/null || ps ax | grep -q '[s]leep 71002'"}}
    """
    with anyio.fail_after(20):
        done = await play(script)

    assert [event.type for event in done.events if "tool_call" in event.type] == ["tool_call_completed"] * 2
    assert not running("sleep 71002")


CANCEL_AT = {
    "while it speaks": ("steps:\n  - say: hello\n  - silence: forever", "message_received"),
    "while a command runs": (
        "steps:\n  - {call: bash, input: {command: \"trap '' TERM; setsid sleep 71003 & echo; sleep 71003\"}}",
        "turn_started",
    ),
    "while a function runs": ("steps:\n  - {call: wait}", "turn_started"),
    "in silence": ("steps:\n  - say: x\n  - silence: 100000", "message_received"),
    "between parallel calls": (
        "steps:\n  - parallel:\n      - {call: bash, input: {command: echo}}\n      - {call: wait}",
        "tool_call_completed",
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("phase", CANCEL_AT)
async def test_cancelling_ends_the_stream_and_every_process(phase: str) -> None:
    """Whatever it is doing, the first rung ends it; a call that was running has an outcome."""
    script, moment = CANCEL_AT[phase]
    adapter = ScriptedAdapter(script, tools={"wait": anyio.sleep_forever})

    with anyio.fail_after(20):
        done = await Drive(adapter, cancel_when=lambda event: event.type == moment).run()

    assert done.rungs == ["interrupt"]
    assert done.error is None
    assert not any(isinstance(event, RunCompleted | RunFailed) for event in done.events)
    assert not running("sleep 71003")


@pytest.mark.anyio
async def test_cancelling_while_the_gate_holds_a_call_runs_nothing(tmp_path: Path) -> None:
    """The held call is withdrawn; it has no effect and no outcome."""
    held = anyio.Event()

    async def hold(call: ToolCall) -> GateAnswer:
        held.set()
        await anyio.sleep_forever()
        raise AssertionError

    adapter = ScriptedAdapter("steps:\n  - {call: bash, input: {command: touch x}}", workspace=tmp_path)
    drive = Drive(adapter, answer=hold)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drive.run)
            await held.wait()
            drive.cancel()

    assert drive.done.types == ["turn_started"]
    assert made_in(tmp_path) == []


@pytest.mark.anyio
async def test_leaving_without_a_ladder_ends_everything() -> None:
    """A reader that goes away leaves no task and no process behind."""
    script = "steps:\n  - {call: bash, input: {command: 'echo up; sleep 71004'}}"
    launch = Launch(run_id="r-71004", session_id="s", prompt="p", gate=allow)

    with anyio.fail_after(20):
        async with (
            ScriptedAdapter(script, gated=False).open(launch) as provider,
            aclosing(provider.events()) as events,  # type: ignore[type-var]
        ):
            async for event in events:
                if event.type == "tool_call_started":
                    break

    assert not running("sleep 71004")


@pytest.mark.anyio
async def test_one_adapter_serves_runs_at_once() -> None:
    """Nothing is shared between runs of one instance, not even the workspace."""
    adapter = ScriptedAdapter("steps:\n  - {call: bash, input: {command: 'ls; touch made'}}\n  - say: done")
    results: list[Driven] = []

    async def one(run_id: str) -> None:
        results.append(await Drive(adapter).run(run_id=run_id))

    async with anyio.create_task_group() as tasks:
        for n in range(3):
            tasks.start_soon(one, f"run-{n}")

    outputs = [outcome for done in results for outcome in done.outcomes("call-1")]
    assert [getattr(outcome, "tool_output", None) for outcome in outputs] == [{"exit_code": 0}] * 3


@pytest.mark.anyio
async def test_a_failing_agent_reports_its_failure_last() -> None:
    """`fail` ends the run with its message, and nothing follows."""
    done = await play("steps:\n  - say: a\n  - fail: out of credit\n  - say: b")

    assert done.events[-1] == RunFailed(error={"code": "scripted_failure", "message": "out of credit"})
    assert [event.content for event in done.events if isinstance(event, MessageReceived)] == ["a"]


@pytest.mark.anyio
async def test_a_gate_that_raises_runs_nothing_and_fails_the_provider(tmp_path: Path) -> None:
    """Fail closed: no answer is no permission."""

    async def broken(call: ToolCall) -> GateAnswer:
        raise RuntimeError("the gate broke")

    done = await play("steps:\n  - {call: bash, input: {command: touch x}}", workspace=tmp_path, answer=broken)

    assert isinstance(done.error, ProviderError)
    assert "the gate broke" in str(done.error)
    assert made_in(tmp_path) == []


@pytest.mark.anyio
async def test_every_other_step_is_an_event_of_its_own() -> None:
    """User messages, thinking, an output that is no text, cumulative usage with its own model."""
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
    usage = next(event for event in done.events if isinstance(event, TokenUsageUpdated))
    assert (usage.scope, usage.input_tokens, usage.model) == ("cumulative", 7, "m-2")
    assert getattr(done.outcomes("call-1")[0], "tool_output", None) == "text"
    assert done.events[-1] == RunCompleted(output={"answer": 42})


@pytest.mark.anyio
async def test_a_function_may_return_anything() -> None:
    """What has no form in JSON is reported as text."""
    done = await play("steps:\n  - {call: make}", tools={"make": lambda: {"path": Path("/x"), 1: (2, 3)}})

    assert getattr(done.outcomes("call-1")[0], "tool_output", None) == {"path": "/x", "1": [2, 3]}


def test_what_it_can_do_is_said() -> None:
    """Gate, tools and model are known before launch; no policy part is compiled away."""
    adapter = ScriptedAdapter(HELLO, tools={"extra": str})
    policy = Policy(name="p", tool_rules=(Deny(("bash",)),), limits=Limits(max_cost_usd=1))

    assert isinstance(adapter, Adapter)
    assert adapter.capabilities.gate == "all"
    assert adapter.capabilities.tools == ("bash", "read", "write", "extra")
    assert ScriptedAdapter(HELLO, gated=False).capabilities.gate == "none"
    assert adapter.compile(policy).unexpressed == ("max_cost_usd", "deny bash")


@pytest.mark.anyio
async def test_a_workspace_that_is_not_there_is_said_before_the_start(tmp_path: Path) -> None:
    """Nothing is started in a directory that does not exist."""
    with pytest.raises(ProviderUnavailableError, match="not a directory"):
        await ScriptedAdapter(HELLO, workspace=tmp_path / "gone").prepare()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("steps:\n  - sey: hi", "script:2:5: `steps[0]`: a step has exactly one of"),
        ("steps:\n  - sey: hi", "did you mean `say`?"),
        ("steps:\n  - say: hi\n    call: x", "found `say` and `call`"),
        ("steps:\n  - call: x\n    inptu: {}", "script:2:5: `steps[0]`: object contains unknown field `inptu`"),
        ("steps:\n  - call: x\n    inptu: {}", "did you mean `input`?"),
        ("steps:\n  - usage: {input_tokens: -1}", "script:2:27: `steps[0].usage.input_tokens`: expected `int` >= 0"),
        ("steps:\n  - usage: {input_tokens: true}", "expected `int`, got `bool`"),
        ("steps:\n  - silence: long", "`steps[0].silence`"),
        ("steps:\n  - call: a\n    if_denied:\n      - x", "script:4:9: `steps[0].if_denied[0]`: a step is a"),
        ("steps:\n  - parallel: [{say: x}]", "`steps[0].parallel[0]`: only calls run side by side"),
        ("steps:\n  - parallel: []", "a list of calls"),
        ("steps:\n  - say: a\n    say: b", "script:3:5: `steps[0].say`: `say` is written twice"),
        ("steps:\n  - {call: a, id: x}\n  - {call: b, id: x}", "two calls have the id `x`"),
        ("steps:\n  - say: hi\nfiles: {../x: y}", "`files.../x`: a file is given by its path within the workspace"),
        ("steps:\n  - say: hi\nstep: 1", "unknown field `step`; did you mean `steps`?"),
        ("steps: []\nx: 1", "a list of one step or more"),
        ("- say: hi\n", "a script is a mapping with `steps`"),
        ("steps:\n  - [\n", "script:3:1: not YAML"),
        ("steps:\n  - !!python/object:os.system {}\n", "not YAML"),
    ],
)
def test_a_bad_script_says_where_and_what(text: str, problem: str) -> None:
    """Line, column and path of the step, and a suggestion for a misspelt key."""
    with pytest.raises(UsageError) as caught:
        ScriptedAdapter(text)

    assert problem in str(caught.value)


def test_every_problem_of_a_script_is_told_at_once() -> None:
    """One reading reports all of them, a line each."""
    with pytest.raises(UsageError) as caught:
        ScriptedAdapter("steps:\n  - sey: hi\n  - usage: {x: 1}\n  - {call: ''}")

    assert len(str(caught.value).splitlines()) == 3


def test_a_script_is_read_from_a_path_text_or_data(tmp_path: Path) -> None:
    """All ways give the same script; a problem in a file names the file."""
    path = tmp_path / "agent.yaml"
    path.write_text("steps:\n  - say: hi\n")
    bad = tmp_path / "bad.yaml"
    bad.write_text("steps:\n  - say: 1\n")

    scripts = [ScriptedAdapter(s).script for s in (path, str(path), path.read_text(), {"steps": [{"say": "hi"}]})]

    assert all(script == scripts[0] for script in scripts)
    with pytest.raises(UsageError, match=r"bad\.yaml:2:10: `steps\[0\]\.say`"):
        ScriptedAdapter(bad)
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        ScriptedAdapter(tmp_path / "none.yaml")
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(UsageError, match="not valid UTF-8"):
        ScriptedAdapter(tmp_path / "x.gz")


def test_bad_arguments_are_said() -> None:
    """A tool that is no function, a time that is none."""
    with pytest.raises(UsageError, match="tool `x` is not a function"):
        ScriptedAdapter(HELLO, tools={"x": 1})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="command_timeout_s"):
        ScriptedAdapter(HELLO, command_timeout_s=0)

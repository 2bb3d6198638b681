"""The tools of a scripted agent: confined, bounded, side by side, and honest about failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from proctor.adapters import ScriptedAdapter
from proctor.policies.events import RunCompleted, ToolCallCompleted, ToolCallFailed
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.adapter_fixture import Drive, Driven
from proctor.supervisor.testing.fakes import PATIENCE_S


async def play(script: Any, *, tools: Any = None, gated: bool = True, workspace: Any = None, **gate: Any) -> Driven:
    """Run a script to its end."""
    adapter = ScriptedAdapter(script, tools=tools, gated=gated, workspace=workspace)
    return await Drive(adapter, **gate).run()


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

    with anyio.fail_after(PATIENCE_S):
        done = await play(PARALLEL, tools={"one": one, "three": three}, refuse={"two"})

    assert [(call.id, call.turn) for call in done.proposed] == [("a", 1), ("b", 1), ("c", 1)]
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

    with anyio.fail_after(PATIENCE_S):
        done = await play(PARALLEL, tools={"one": str, "two": str, "three": three}, answer=hold)

    assert all(done.outcomes(call_id) for call_id in "abc")


def boom(why: str) -> None:
    """A tool that fails."""
    raise ValueError(why)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            "{call: bash, input: {command: 'echo out; echo err >&2; exit 3'}}",
            {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"},
        ),
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
async def test_a_function_may_return_anything() -> None:
    """What has no form in JSON is reported as text."""
    done = await play("steps:\n  - {call: make}", tools={"make": lambda: {"path": Path("/x"), 1: (2, 3)}})

    assert getattr(done.outcomes("call-1")[0], "tool_output", None) == {"path": "/x", "1": [2, 3]}

"""However a scripted run ends, no process and no task of it is left."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest

from proctor.adapters import ScriptedAdapter
from proctor.policies.events import RunCompleted, RunFailed, ToolCallFailed
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import GateAnswer, Launch
from proctor.supervisor.testing.adapter_fixture import Drive, Driven
from proctor.supervisor.testing.fakes import PATIENCE_S


async def play(script: Any, *, tools: Any = None, gated: bool = True, workspace: Any = None, **gate: Any) -> Driven:
    """Run a script to its end."""
    adapter = ScriptedAdapter(script, tools=tools, gated=gated, workspace=workspace)
    return await Drive(adapter, **gate).run()


def made_in(workspace: Path) -> list[str]:
    """The files that are there."""
    return [path.name for path in workspace.iterdir()]


async def allow(call: ToolCall) -> GateAnswer:
    """A gate that lets everything through."""
    return GateAnswer(allowed=True)


def running(command: str) -> bool:
    """Whether a process runs exactly that."""
    return any(" ".join(p.info["cmdline"] or []) == command for p in psutil.process_iter(["cmdline"]))


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
    with anyio.fail_after(PATIENCE_S):
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

    with anyio.fail_after(PATIENCE_S):
        done = await Drive(adapter, cancel_when=lambda event: event.type == moment).run()

    assert done.steps_taken == ["interrupt"]
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
    with anyio.fail_after(PATIENCE_S):
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

    with anyio.fail_after(PATIENCE_S):
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
async def test_a_gate_that_raises_runs_nothing_and_fails_the_provider(tmp_path: Path) -> None:
    """Fail closed: no answer is no permission."""

    async def broken(call: ToolCall) -> GateAnswer:
        raise RuntimeError("the gate broke")

    done = await play("steps:\n  - {call: bash, input: {command: touch x}}", workspace=tmp_path, answer=broken)

    assert isinstance(done.error, ProviderError)
    assert "the gate broke" in str(done.error)
    assert made_in(tmp_path) == []

"""The real client is ended for good: its ladder works, and no process of it is left."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import psutil
import pytest

from proctor.policies.events import RunFailed, ToolCallCompleted
from proctor.policies.events.calls import ToolCall
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.run.provider_session import run_cancel_steps
from proctor.supervisor.run.services import Clock
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.claude, pytest.mark.anyio]

SLEEPER = "tail -f /dev/null --sleep-interval={}"


def run_of(sleeper: int) -> bool:
    """Whether a sleeper of that number runs."""
    word = f"--sleep-interval={sleeper}"
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(line[:1] == ["tail"] and word in line for line in lines)


def sleeping(bench: Any, number: int) -> Any:
    """A call of a command that says that it is up and then sleeps."""
    os.mkfifo(bench.cwd / "up")
    return bench.api.bash(f"echo up > up; {SLEEPER.format(number)}")


async def until_up(bench: Any) -> None:
    """Return once the command says that it is up."""
    with anyio.fail_after(PATIENCE_S):
        await anyio.to_thread.run_sync((bench.cwd / "up").read_text, abandon_on_cancel=True)


async def allow(call: ToolCall) -> GateAnswer:
    """Refuse nothing."""
    return GateAnswer(allowed=True)


async def cancelled(provider: Any, ready: Any) -> tuple[list[Any], list[Any]]:
    """The events and the rungs of a run that is cancelled once `ready` returns."""
    seen: list[Any] = []
    ended = anyio.Event()
    rungs: list[Any] = []

    async def walk_down() -> None:
        await ready()
        rungs.extend(await run_cancel_steps(provider.cancel_steps(), ended, Clock()))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(walk_down)
            seen.extend([event async for event in provider.events()])
            ended.set()
    return seen, rungs


async def test_a_cancel_while_commands_run_ends_them_all(bench: Any) -> None:
    """The first rung does: the command, what it left in the background and what left its session are gone."""
    api = bench.api
    detached = f"setsid {SLEEPER.format(9101)} >/dev/null 2>&1 &"
    os.mkfifo(bench.cwd / "up")
    command = f"{detached} {SLEEPER.format(9102)} & echo up > up; {SLEEPER.format(9103)}; touch no.txt"
    api.say(api.reply(api.bash(command)))
    launch = bench.launch(allow)

    async with bench.adapter().open(launch) as provider:
        seen, rungs = await cancelled(provider, lambda: until_up(bench))

    assert [step["rung"] for step in rungs] == ["interrupt"]
    assert isinstance(seen[-1], RunFailed)
    assert seen[-1].error["code"] == "aborted_tools"
    assert not any(isinstance(event, ToolCallCompleted) for event in seen)
    assert bench.marked(launch.run_id) == []
    assert not any(run_of(number) for number in (9101, 9102, 9103))
    assert not (bench.cwd / "no.txt").exists()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_cancelled_over_and_over_leaves_no_process(bench: Any) -> None:
    """A bare task's cancel reaches into shielded scopes; the clean-up is out of its reach."""
    api = bench.api
    api.say(api.reply(sleeping(bench, 9115)))
    launch = bench.launch(allow)

    async def listen() -> None:
        async with bench.adapter().open(launch) as provider:
            async for _ in provider.events():
                pass

    task = asyncio.create_task(listen())
    await until_up(bench)
    for _ in range(5):
        task.cancel()
        await anyio.lowlevel.checkpoint()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert bench.marked(launch.run_id) == []


async def test_a_finished_run_leaves_no_background_command(bench: Any) -> None:
    """A command the model left in the background ends with the run."""
    api = bench.api
    command = api.bash(SLEEPER.format(9113), run_in_background=True)
    api.say(api.reply(command), api.reply(api.text("left it running")))
    launch = bench.launch(allow)

    async with bench.adapter().open(launch) as provider:
        seen = [event async for event in provider.events()]

    assert seen[-1].output == "left it running"
    assert bench.marked(launch.run_id) == []


async def test_the_later_rungs_end_a_client_that_does_not_answer(bench: Any) -> None:
    """A client that is stopped is terminated or killed, with what it started."""
    api = bench.api
    api.say(api.reply(sleeping(bench, 9114)))
    launch = bench.launch(allow)

    async def stopped() -> None:
        await until_up(bench)
        bench.client(launch.run_id).suspend()

    async with bench.adapter().open(launch) as provider:
        _, rungs = await cancelled(provider, stopped)

    assert [step["rung"] for step in rungs][:2] == ["interrupt", "close"]
    assert rungs[-1]["ended"]
    assert bench.marked(launch.run_id) == []

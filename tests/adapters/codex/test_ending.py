"""However a run ends, it ends once, soon, and with no process left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from proctor.policies.calls import ToolCall
from proctor.policies.events import (
    ErrorOccurred,
    ErrorRecovered,
    Event,
    RunCompleted,
    ToolCallFailed,
    TurnStarted,
)
from proctor.supervisor.clock import Clock
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ladder import walk
from proctor.supervisor.ports import GateAnswer, Provider

pytestmark = [pytest.mark.anyio, pytest.mark.codex]

SLEEPER = "echo up > {signal}; sleep 80000 & sleep 80000"
SLEEPERS = "sleep 80001 & (setsid sleep 80002 &) ; echo up > {signal}; sleep 80003"


class Watched:
    """A run that is read to its end in the background; `ended` is set then."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.seen: list[Event] = []
        self.error: Exception | None = None
        self.ended = anyio.Event()
        self.responding = anyio.Event()

    async def read(self) -> None:
        try:
            async for event in self.provider.events():
                self.seen.append(event)
                if isinstance(event, TurnStarted):
                    self.responding.set()
        except ProviderError as error:
            self.error = error
        self.ended.set()

    async def cancel(self) -> list[dict[str, Any]]:
        """Walk down the ladder; what was tried."""
        return await walk(self.provider.ladder(), self.ended, Clock())


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe on which a command says that it is up."""
    path = tmp_path / "up"
    os.mkfifo(path)
    return path


async def heard(pipe: Path) -> None:
    """Wait until a command wrote to the pipe."""
    with anyio.fail_after(20):
        await anyio.to_thread.run_sync(pipe.read_text, abandon_on_cancel=True)


async def test_a_cancel_ends_the_command_that_runs_with_all_it_started(bench: Any, pipe: Path) -> None:
    """The interrupt alone leaves commands running, so they are cleaned up after it."""
    bench.api.reply(bench.api.shell("c1", SLEEPER.format(signal=pipe), yield_time_ms=30000))
    with anyio.fail_after(30):
        async with bench.adapter().open(bench.launch()) as provider, anyio.create_task_group() as tasks:
            run = Watched(provider)
            tasks.start_soon(run.read)
            await heard(pipe)
            taken = await run.cancel()

    assert [rung["rung"] for rung in taken] == ["interrupt"]
    assert [event.tool_call_id for event in run.seen if isinstance(event, ToolCallFailed)] == ["c1"]
    assert run.error is None
    assert len(bench.api.requests) == 1
    assert bench.survivors() == []


async def test_a_cancel_while_a_call_is_held_never_runs_it(bench: Any) -> None:
    """The answer that comes too late is ignored."""
    held, too_late = anyio.Event(), anyio.Event()

    async def gate(call: ToolCall) -> GateAnswer:
        held.set()
        await too_late.wait()
        return GateAnswer(allowed=True)

    bench.api.reply(bench.api.shell("c1", "touch made"))
    with anyio.fail_after(30):
        async with bench.adapter().open(bench.launch(gate)) as provider, anyio.create_task_group() as tasks:
            run = Watched(provider)
            tasks.start_soon(run.read)
            await held.wait()
            taken = await run.cancel()
            too_late.set()

    assert [rung["rung"] for rung in taken] == ["interrupt"]
    assert bench.made() == []
    assert bench.survivors() == []


async def test_a_cancel_ends_a_response_that_never_ends(bench: Any) -> None:
    """The provider is silent; the interrupt does not wait for it."""
    bench.api.reply(bench.api.text("thinking"), endless=True)
    with anyio.fail_after(30):
        async with bench.adapter().open(bench.launch()) as provider, anyio.create_task_group() as tasks:
            run = Watched(provider)
            tasks.start_soon(run.read)
            await run.responding.wait()
            taken = await run.cancel()

    assert [rung["rung"] for rung in taken] == ["interrupt"]
    assert not any(isinstance(event, RunCompleted) for event in run.seen)


async def test_a_second_walk_down_the_ladder_interrupts_no_second_time(bench: Any) -> None:
    """The client never answers a second interrupt of one turn."""
    bench.api.reply(bench.api.text("thinking"), endless=True)
    with anyio.fail_after(30):
        async with bench.adapter().open(bench.launch()) as provider, anyio.create_task_group() as tasks:
            run = Watched(provider)
            tasks.start_soon(run.read)
            await run.responding.wait()
            first = await provider.ladder()[0].act()
            second = await provider.ladder()[0].act()
            await run.ended.wait()

    assert [first, second] == [{"interrupted_by": "ladder"}] * 2


async def test_the_last_rung_ends_a_client_that_hears_nothing(bench: Any, pipe: Path) -> None:
    """A stopped client answers no interrupt and no hang-up; what it started is killed with it."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    with anyio.fail_after(40):
        async with bench.adapter().open(bench.launch()) as provider, anyio.create_task_group() as tasks:
            run = Watched(provider)
            tasks.start_soon(run.read)
            await heard(pipe)
            client(bench).send_signal(signal.SIGSTOP)
            await provider.ladder()[-1].act()
            await run.ended.wait()

    assert bench.survivors() == []


async def test_leaving_without_a_cancel_leaves_nothing_behind(bench: Any, pipe: Path) -> None:
    """A caller that just goes away."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    with anyio.fail_after(30):
        async with bench.adapter().open(bench.launch()) as provider, anyio.create_task_group() as tasks:
            tasks.start_soon(Watched(provider).read)
            await heard(pipe)
            tasks.cancel_scope.cancel()

    assert bench.survivors() == []


async def test_a_crash_of_the_client_is_an_error_and_its_orphans_are_ended(bench: Any, pipe: Path) -> None:
    """The error says how the client ended."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    with anyio.fail_after(30):
        async with bench.adapter().open(bench.launch()) as provider, anyio.create_task_group() as tasks:
            run = Watched(provider)
            tasks.start_soon(run.read)
            await heard(pipe)
            client(bench).kill()
            await run.ended.wait()

    assert isinstance(run.error, ProviderError)
    assert str(run.error) == "codex ended in the middle of its turn, exit code -9"
    assert run.error.details["exit_code"] == -9
    assert bench.survivors() == []


async def test_a_failing_model_provider_is_an_error_that_names_it(bench: Any) -> None:
    """After the retries the client gives up and says why."""
    for _ in range(4):
        bench.api.reply(status=500)
    with pytest.raises(ProviderError) as caught:
        await bench.run()

    assert caught.value.details["kind"] == "internalServerError"
    assert caught.value.details["error"]["message"] == str(caught.value)


async def test_a_failure_that_is_retried_is_reported_and_recovered(bench: Any) -> None:
    """A stream cut off once is no failed run."""
    bench.api.reply(cut=True)
    events = await bench.run()

    codes = [event.code for event in events if isinstance(event, (ErrorOccurred, ErrorRecovered))]
    assert codes == ["responseStreamDisconnected"] * 2
    assert events[-1] == RunCompleted(output="end")


async def test_lines_that_are_no_messages_are_reported(bench: Any, stand_in: Callable[[str], Path]) -> None:
    """And the run goes on."""
    adapter = bench.adapter(codex_path=stand_in("print('what is this', flush=True); say(DONE)"))
    events = await bench.run(adapter=adapter)

    assert [event.message for event in events if isinstance(event, ErrorOccurred)] == [
        "codex wrote `what is this`, which is no message"
    ]
    assert events[-1] == RunCompleted(output="")


async def test_what_is_asked_and_not_known_is_refused(bench: Any, stand_in: Callable[[str], Path]) -> None:
    """A call nobody announced, input for a terminal, more permissions, a question to the user."""
    script = """
command = {"itemId": "x", "command": "rm", "cwd": "/"}
for method, params in [
    ("item/commandExecution/requestApproval", {**command, "kind": "writeStdin"}),
    ("item/commandExecution/requestApproval", {**command, "networkApprovalContext": {"host": "h"}}),
    ("item/fileChange/requestApproval", {"itemId": "never announced"}),
    ("mcpServer/elicitation/request", {"serverName": "s", "message": "your name?"}),
    ("item/permissions/requestApproval", {"permissions": {"network": {"enabled": True}}}),
    ("item/tool/requestUserInput", {"questions": []}),
]:
    say({"id": method, "method": method, "params": params})
    answer = hear()
    report(answer.get("result", answer.get("error", {}).get("code")))
say(DONE)
"""
    events = await bench.run(adapter=bench.adapter(codex_path=stand_in(script)))

    told = [event.raw["told"] for event in events if event.type == "codex/told"]
    assert told == [
        {"decision": "decline"},
        {"decision": "decline"},
        {"decision": "decline"},
        {"action": "decline"},
        {"permissions": {}, "scope": "turn"},
        -32601,
    ]


def client(bench: Any) -> psutil.Process:
    """The client's own process of the one run of a bench."""
    found = [process for process in map(psutil.Process, bench.survivors()) if "app-server" in process.cmdline()]
    return found[0]


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], Path]:
    """Make an executable that greets as the client does and then does what a script says."""

    def make(script: str) -> Path:
        path = tmp_path / "stand-in"
        path.write_text(STAND_IN.replace("SCRIPT", script))
        path.chmod(0o755)
        return path

    return make


STAND_IN = """#!/usr/bin/env python3
import json, sys

def say(message): print(json.dumps(message), flush=True)
def hear(): return json.loads(sys.stdin.readline())
def report(told): say({"method": "told", "params": {"told": told}})

DONE = {"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": "u", "status": "completed"}}}
TERMS = {"approvalPolicy": "untrusted", "approvalsReviewer": "user", "sandbox": {"type": "dangerFullAccess"}}
THREAD = {"thread": {"id": "t"}, "model": "m", **TERMS}
ANSWERS = {"thread/start": THREAD, "turn/start": {"turn": {"id": "u"}}}
while True:
    message = hear()
    if "id" in message:
        say({"id": message["id"], "result": ANSWERS.get(message["method"], {})})
    if message.get("method") == "turn/start":
        break
SCRIPT
hear()
"""

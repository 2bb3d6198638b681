"""However a run ends, it ends once, soon, and with no process left."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from proctor.adapters.kit import guardian
from proctor.policies.events import ErrorOccurred, ErrorRecovered, RunCompleted
from proctor.supervisor.errors import ProviderError

pytestmark = [pytest.mark.anyio, pytest.mark.codex]
SLEEPERS = "sleep 80001 & (setsid sleep 80002 &) ; echo up > {signal}; sleep 80003"


async def test_the_last_rung_ends_a_client_that_hears_nothing(bench: Any, pipe: Any) -> None:
    """A stopped client answers no interrupt and no hang-up; what it started is killed with it."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        client(bench).send_signal(signal.SIGSTOP)
        await run.provider.cancel_steps()[-1].act()
        await run.ended.wait()

    assert bench.survivors() == []


async def test_a_crash_of_the_client_is_an_error_and_its_orphans_are_ended(bench: Any, pipe: Any) -> None:
    """The error says how the client ended."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        client(bench).kill()
        await run.ended.wait()

    assert isinstance(run.error, ProviderError)
    assert str(run.error) == "codex ended in the middle of its turn, exit code -9"
    assert run.error.details["exit_code"] == -9
    assert bench.survivors() == []


async def test_a_failure_that_is_retried_is_recovered_and_one_that_stays_is_an_error_that_names_it(
    bench: Any,
) -> None:
    """A stream cut off once is no failed run. After the retries the client gives up and says why."""
    bench.api.reply(cut=True)
    events = await bench.run()
    for _ in range(4):
        bench.api.reply(status=500)
    with pytest.raises(ProviderError) as caught:
        await bench.run()

    codes = [event.code for event in events if isinstance(event, (ErrorOccurred, ErrorRecovered))]
    assert codes == ["responseStreamDisconnected"] * 2
    assert events[-1] == RunCompleted(output="end")
    assert caught.value.details["kind"] == "internalServerError"
    assert caught.value.details["error"]["message"] == str(caught.value)


async def test_lines_that_are_no_messages_are_reported(bench: Any, stand_in: Callable[[str], Path]) -> None:
    """And the run goes on."""
    adapter = bench.adapter(codex_path=stand_in("print('what is this', flush=True); say(DONE)"))
    events = await bench.run(adapter=adapter)

    assert [event.message for event in events if isinstance(event, ErrorOccurred)] == [
        "codex wrote `what is this`, which is not a message"
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

    replies = [event.raw["told"] for event in events if event.type == "codex/told"]
    assert replies == [
        {"decision": "decline"},
        {"decision": "decline"},
        {"decision": "decline"},
        {"action": "decline"},
        {"permissions": {}, "scope": "turn"},
        -32601,
    ]


def client(bench: Any) -> psutil.Process:
    """The client's own process of the one run of a bench, not its guardian's, which has the command as arguments."""
    alive = map(psutil.Process, bench.survivors())
    return next(one for one in alive if "app-server" in (line := one.cmdline()) and guardian.__file__ not in line)

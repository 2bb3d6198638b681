"""Every end of a run of the real client, by a cancel or by itself, is reported once and soon, and leaves
no process.
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.codex import session
from proctor.adapters.agents.codex.connection import CodexConnection
from proctor.policies import Limits, Policy
from proctor.policies.events import ErrorOccurred, ErrorRecovered, RunCancelled, RunCompleted
from proctor.supervisor import MemoryStore, ProviderError, Supervisor, run_once

pytestmark = [pytest.mark.anyio, pytest.mark.codex, pytest.mark.usefixtures("patient")]
SLEEPER = "echo up > {signal}; sleep 80000 & sleep 80000"
SLEEPERS = "sleep 80001 & (setsid sleep 80002 &) ; echo up > {signal}; sleep 80003"


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], anyio.Event]:
    """Create an event that is set at the client's n-th request, whose answer is withheld."""

    def watch(wanted: str, times: int) -> anyio.Event:
        was_requested = anyio.Event()
        seen: list[str] = []
        ask = CodexConnection.request

        async def watched(connection: CodexConnection, method: str, params: Any, **how: Any) -> dict[str, Any]:
            seen.append(method)
            answer = await ask(connection, method, params, **how)
            if seen.count(wanted) == times:
                was_requested.set()
                await anyio.sleep_forever()
            return answer

        monkeypatch.setattr(CodexConnection, "request", watched)
        return was_requested

    return watch


@pytest.mark.parametrize(
    ("method", "times"),
    [
        ("initialize", 1),  # during its preparation
        ("initialize", 2),
        ("thread/start", 1),
        ("turn/start", 1),
    ],
)
async def test_a_cancel_before_the_turn_closes_the_client(
    bench: Any, asking: Callable[[str, int], anyio.Event], method: str, times: int
) -> None:
    """At each step of its start. The run is recorded as cancelled."""
    bench.api.reply(endless=True)
    bench.run_ids.append("run-early")
    was_requested = asking(method, times)
    policy = Policy(name="p", limits=Limits(max_tool_calls=5))
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(bench.adapter(), "go", policies=[policy], run_id="run-early")
        await was_requested.wait()
        await handle.cancel(reason="enough")
        result = await handle.wait()

    assert result.status == "cancelled"
    (ended,) = (event for event in result.events if isinstance(event, RunCancelled))
    assert ended.evidence == {"rungs": [{"rung": "abandon"}]}
    assert bench.survivors() == []


async def test_a_cancel_before_the_client_reports_the_turn_waits_for_that(bench: Any) -> None:
    """Until then the client rejects an interrupt."""
    bench.api.reply(endless=True)
    async with bench.watched() as run:
        await run.interrupt()

    assert bench.survivors() == []


@pytest.mark.parametrize("replies", [[{"mute": True}], [{"status": 500}] * 4], ids=["unanswered", "retried"])
async def test_a_cancel_ends_a_turn_whose_request_has_no_response(bench: Any, replies: list[dict[str, Any]]) -> None:
    """The API does not start to respond, or the client waits before a retry."""
    for reply in replies:
        bench.api.reply(**reply)
    async with bench.watched() as run:
        await bench.api.wait_for_requests()
        await run.interrupt()


async def test_a_cancel_between_two_responses_interrupts(bench: Any, pipe: Any) -> None:
    """A command left in the background is ended too."""
    bench.api.reply(bench.api.shell("c1", SLEEPER.format(signal=pipe), yield_time_ms=250))
    bench.api.reply(mute=True)
    async with bench.watched() as run:
        await pipe.heard()
        await bench.api.wait_for_requests(2)
        await run.interrupt()

    assert bench.survivors() == []


async def test_a_second_cancel_does_not_interrupt_again(bench: Any) -> None:
    """The client never answers a second interrupt of a turn."""
    bench.api.reply(bench.api.text("thinking"), endless=True)
    async with bench.watched() as run:
        await run.responding.wait()
        first = await run.provider.cancel_steps()[0].act()
        second = await run.provider.cancel_steps()[0].act()
        await run.ended.wait()

    assert [first, second] == [{"interrupted_by": "ladder"}] * 2


async def test_a_client_that_never_starts_its_turn_is_closed(
    bench: Any, stand_in: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt times out, and the client's input is closed."""
    for bound in ("INTERRUPT_S", "CLEAN_UP_S"):
        monkeypatch.setattr(session, bound, 0.05)
    monkeypatch.setattr(session.CodexSession, "interrupt_s", 0.5)
    async with bench.watched(adapter=bench.adapter(codex_path=stand_in(""))) as run:
        tried = await run.cancel()

    assert [(step["rung"], "error" in step) for step in tried][:2] == [("interrupt", True), ("close", False)]
    assert run.error is None


@pytest.mark.parametrize(
    "message", ["item/started: item", "turn/completed: turn", "thread/tokenUsage/updated: tokenUsage"]
)
async def test_a_message_of_another_shape_is_an_error_that_names_it(
    bench: Any, stand_in: Callable[[str], Any], message: str
) -> None:
    """It might hide a call, or usage."""
    method, _, field = message.partition(": ")
    odd = {"method": method, "params": {"threadId": "t", "turnId": "u", field: 7}}
    adapter = bench.adapter(codex_path=stand_in(f"say({odd!r}); say(DONE)"))

    with pytest.raises(ProviderError, match=f"`{method}` cannot be read"):
        await run_once(adapter, "go", policies=())


async def test_the_last_cancel_step_ends_a_client_that_answers_nothing(bench: Any, pipe: Any) -> None:
    """A suspended client is killed, with the processes it started."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        bench.client().send_signal(signal.SIGSTOP)
        await run.provider.cancel_steps()[-1].act()
        await run.ended.wait()

    assert bench.survivors() == []


async def test_a_crash_of_the_client_is_an_error_and_its_orphans_are_ended(bench: Any, pipe: Any) -> None:
    """The error says how the client exited."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        bench.client().kill()
        await run.ended.wait()

    assert isinstance(run.error, ProviderError)
    assert str(run.error) == "codex ended in the middle of its turn, exit code -9"
    assert run.error.details["exit_code"] == -9
    assert bench.survivors() == []


async def test_a_retried_failure_recovers_and_a_permanent_one_is_an_error_that_names_it(bench: Any) -> None:
    """One interrupted stream does not fail the run. After its retries, the client reports the error."""
    bench.api.reply(cut=True)
    events = await bench.run()
    for _ in range(4):
        bench.api.reply(status=500)
    with pytest.raises(ProviderError) as caught:
        await bench.run()

    codes = [event.code for event in events if isinstance(event, (ErrorOccurred, ErrorRecovered))]
    assert codes == ["responseStreamDisconnected"] * 2
    assert events[-1] == RunCompleted(output="end")
    assert caught.value.details["code"] == "internalServerError"
    assert caught.value.details["error"]["message"] == str(caught.value)


async def test_lines_that_are_no_messages_are_reported(bench: Any, stand_in: Callable[[str], Path]) -> None:
    """The run continues."""
    adapter = bench.adapter(codex_path=stand_in("print('what is this', flush=True); say(DONE)"))
    events = await bench.run(adapter=adapter)

    assert [event.message for event in events if isinstance(event, ErrorOccurred)] == [
        "codex wrote `what is this`, which is not a message"
    ]
    assert events[-1] == RunCompleted(output="")


async def test_an_unknown_question_is_denied(bench: Any, stand_in: Callable[[str], Path]) -> None:
    """An unannounced call, input for a terminal, more permissions, a question to the user."""
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

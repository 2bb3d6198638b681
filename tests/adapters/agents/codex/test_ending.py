"""However a run of the real client ends, it ends once, soon, and with no process left: by a cancel, or by itself."""

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
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.codex, pytest.mark.usefixtures("patient")]
SLEEPER = "echo up > {signal}; sleep 80000 & sleep 80000"
SLEEPERS = "sleep 80001 & (setsid sleep 80002 &) ; echo up > {signal}; sleep 80003"


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], anyio.Event]:
    """Make an event that is set when the client got a request a given number of times; its answer is withheld."""

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
        ("initialize", 1),  # while it is prepared
        ("initialize", 2),
        ("thread/start", 1),
        ("turn/start", 1),
    ],
)
async def test_a_cancel_before_there_is_a_turn_closes_the_client(
    bench: Any, asking: Callable[[str, int], anyio.Event], method: str, times: int
) -> None:
    """At each step of its start; the run is recorded as cancelled."""
    bench.api.reply(endless=True)
    bench.run_ids.append("run-early")
    was_requested = asking(method, times)
    policy = Policy(name="p", limits=Limits(max_tool_calls=5))
    with anyio.fail_after(PATIENCE_S):
        async with Supervisor(MemoryStore()) as supervisor:
            handle = await supervisor.start(bench.adapter(), "go", policies=[policy], run_id="run-early")
            await was_requested.wait()
            await handle.cancel(reason="enough")
            result = await handle.wait()

    assert result.status == "cancelled"
    (ended,) = (event for event in result.events if isinstance(event, RunCancelled))
    assert ended.evidence == {"rungs": [{"rung": "abandon"}]}
    assert bench.survivors() == []


async def test_a_cancel_before_the_client_says_that_the_turn_began_waits_for_that(bench: Any) -> None:
    """The client refuses an interrupt until then."""
    bench.api.reply(endless=True)
    async with bench.watched() as run:
        await run.interrupt()

    assert bench.survivors() == []


@pytest.mark.parametrize("replies", [[{"mute": True}], [{"status": 500}] * 4], ids=["unanswered", "retried"])
async def test_a_cancel_ends_a_turn_whose_request_has_no_response(bench: Any, replies: list[dict[str, Any]]) -> None:
    """The provider does not even begin to respond, or the client waits before it asks again."""
    for reply in replies:
        bench.api.reply(**reply)
    async with bench.watched() as run:
        await bench.api.wait_for_requests()
        await run.interrupt()


async def test_a_cancel_between_two_responses_interrupts(bench: Any, pipe: Any) -> None:
    """A command left running in the background is ended too."""
    bench.api.reply(bench.api.shell("c1", SLEEPER.format(signal=pipe), yield_time_ms=250))
    bench.api.reply(mute=True)
    async with bench.watched() as run:
        await pipe.heard()
        await bench.api.wait_for_requests(2)
        await run.interrupt()

    assert bench.survivors() == []


async def test_a_second_walk_down_the_ladder_interrupts_no_second_time(bench: Any) -> None:
    """The client never answers a second interrupt of one turn."""
    bench.api.reply(bench.api.text("thinking"), endless=True)
    async with bench.watched() as run:
        await run.responding.wait()
        first = await run.provider.cancel_steps()[0].act()
        second = await run.provider.cancel_steps()[0].act()
        await run.ended.wait()

    assert [first, second] == [{"interrupted_by": "ladder"}] * 2


async def test_a_client_that_never_begins_its_turn_is_closed(
    bench: Any, stand_in: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt is given up, and its input closed."""
    for bound in ("INTERRUPT_S", "CLEAN_UP_S"):
        monkeypatch.setattr(session, bound, 0.05)
    monkeypatch.setattr(session.CodexSession, "interrupt_s", 0.5)
    async with bench.watched(adapter=bench.adapter(codex_path=stand_in(""))) as run:
        taken = await run.cancel()

    assert [(step["rung"], "error" in step) for step in taken][:2] == [("interrupt", True), ("close", False)]
    assert run.error is None


@pytest.mark.parametrize(
    "message", ["item/started: item", "turn/completed: turn", "thread/tokenUsage/updated: tokenUsage"]
)
async def test_a_message_of_another_shape_is_an_error_that_names_it(
    bench: Any, stand_in: Callable[[str], Any], message: str
) -> None:
    """It may hide a call, or what was used."""
    method, _, field = message.partition(": ")
    odd = {"method": method, "params": {"threadId": "t", "turnId": "u", field: 7}}
    adapter = bench.adapter(codex_path=stand_in(f"say({odd!r}); say(DONE)"))

    with pytest.raises(ProviderError, match=f"`{method}` cannot be read"):
        await run_once(adapter, "go", policies=())


async def test_the_last_rung_ends_a_client_that_hears_nothing(bench: Any, pipe: Any) -> None:
    """A stopped client answers no interrupt and no hang-up; what it started is killed with it."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        bench.client().send_signal(signal.SIGSTOP)
        await run.provider.cancel_steps()[-1].act()
        await run.ended.wait()

    assert bench.survivors() == []


async def test_a_crash_of_the_client_is_an_error_and_its_orphans_are_ended(bench: Any, pipe: Any) -> None:
    """The error says how the client ended."""
    bench.api.reply(bench.api.shell("c1", SLEEPERS.format(signal=pipe), yield_time_ms=30000))
    async with bench.watched() as run:
        await pipe.heard()
        bench.client().kill()
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
    assert caught.value.details["code"] == "internalServerError"
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

"""Duration, idleness and expiry on the supervisor's clock, in virtual time."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
import trio.testing

from proctor.policies import Approval, Check, Deny, Limits, Policy, PolicyViolationError
from proctor.policies.events import Event, MessageReceived, PolicyViolated, RunCancelled, RunCompleted, RunStarted
from proctor.supervisor import KillSwitch, MemoryStore, Supervisor, create_run, run_once
from proctor.supervisor.ports.stored_types import Owner, RunInfo
from proctor.supervisor.run.provider_session import TURN
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover, Pause
from tests.supervised import OPEN, Before, Speaking, denying

pytestmark = pytest.mark.trio


def limited(**limits: Any) -> Policy:
    return Policy(name="p", limits=Limits(**limits), on_violation="cancel")


async def refused(adapter: FakeAdapter, policy: Policy, **more: Any) -> tuple[PolicyViolationError, float]:
    began = trio.current_time()
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=[policy], **more)
    return raised.value, trio.current_time() - began


class NeverStarts(FakeAdapter):
    """An agent whose preparation never finishes."""

    async def prepare(self) -> None:
        await trio.sleep_forever()


HERE = MessageReceived(content="still here")


@pytest.mark.parametrize(("adapter", "limit", "after_s", "rungs"), [
    (FakeAdapter([Pause()]), {"max_duration_ms": 60_000}, 60, {"interrupt": True}),
    # three pauses below the limit, then one above it
    (FakeAdapter([HERE, Pause(4), HERE, Pause(4), HERE, Pause(4), HERE, Pause()]), {"max_idle_ms": 5_000}, 17,
        {"interrupt": True}),
    # each cancel step has a timeout
    (FakeAdapter([Pause()], deaf=2, rung_s=3), {"max_duration_ms": 1_000}, 7,
        {"interrupt": False, "terminate": False, "kill": True}),
    # the clock starts with the run, not with the agent's first event
    (NeverStarts(), {"max_duration_ms": 2_000}, 2, {"abandon": None}),
], ids=["silent", "idle", "deaf", "never starts"])  # fmt: skip
async def test_a_provider_is_cancelled_within_50_ms_of_its_deadline(
    adapter: FakeAdapter, limit: dict[str, int], after_s: float, rungs: dict[str, bool | None], autojump_clock: object
) -> None:
    """While no event arrives. The terminal event has the outcome of each cancel step."""
    error, took = await refused(adapter, limited(**limit))
    terminal = error.partial.events[-1]

    assert [(v.kind, v.enforcement) for v in error.violations] == [(*limit, "interrupted")]
    assert after_s - 0.01 <= took < after_s + 0.05
    assert isinstance(terminal, RunCancelled)
    assert {step["rung"]: step.get("ended") for step in terminal.evidence["rungs"]} == rungs
    assert adapter.steps_taken == [rung for rung in rungs if rung != "abandon"]
    assert error.partial.status == "cancelled"


async def test_a_run_that_ends_just_before_its_deadline_is_not_cancelled(autojump_clock: object) -> None:
    result = await run_once(FakeAdapter([Pause(0.4)]), "go", policies=[limited(max_duration_ms=500)])

    assert (result.status, result.policy.violations) == ("completed", ())


async def long_work() -> None:
    await trio.sleep(60)


ASKS = (Deny(("bash",), action="request_approval"),)


async def test_idle_time_does_not_count_while_a_tool_runs_or_a_call_is_pending(autojump_clock: object) -> None:
    """A long call and a long approval are not idle time; the silence after them is."""
    policy = Policy(name="p", limits=Limits(max_idle_ms=5_000), on_violation="cancel", tool_rules=ASKS)
    slow = Ask(name="read", meanwhile=long_work)

    async def approver(request: Any) -> Any:
        await trio.sleep(60)
        return await FakeApprover(True)(request)

    adapter = FakeAdapter([slow, Ask(name="bash"), Pause()])
    error, took = await refused(adapter, policy, approver=approver)

    assert [call.name for call in adapter.ran] == ["read", "bash"]
    assert [v.kind for v in error.violations if v.action == "cancel"] == ["max_idle_ms"]
    assert 124.99 <= took < 125.05


async def test_a_check_that_never_answers_denies_its_call_after_a_minute(autojump_clock: object) -> None:
    """With a reason; the run continues."""

    async def check(call: Any) -> None:
        await trio.sleep_forever()

    policy = Policy(name="p", rules=(Check(check=check, tool="bash", id="asked"),), on_violation="deny")
    adapter = FakeAdapter([Ask(id="c1", name="bash"), Ask(id="c2", name="read")])
    began = trio.current_time()
    result = await run_once(adapter, "go", policies=[policy])
    (violation,) = result.policy.violations

    assert 59.99 <= trio.current_time() - began < 60.05
    assert [call.name for call in adapter.ran] == ["read"]
    assert (violation.rule, violation.enforcement) == ("asked", "prevented")
    assert "no answer within 60 seconds" in violation.message


@pytest.mark.parametrize(("on_timeout", "cancelled"), [("deny", False), ("cancel", True)])
async def test_an_unanswered_approval_expires(on_timeout: Any, cancelled: bool, autojump_clock: object) -> None:
    """It is recorded as expired, not as denied by a person, and `on_timeout` is its effect. The model learns that
    nobody approved the call, and nothing else.
    """
    policy = denying("request_approval", approval=Approval(timeout_s=30, on_timeout=on_timeout))
    adapter = FakeAdapter([Ask(id="c1", name="bash"), Ask(id="c2", name="read")])
    began = trio.current_time()
    store = MemoryStore()
    try:
        result = await run_once(adapter, "go", policies=[policy], approver=FakeApprover(None), store=store)
    except PolicyViolationError as error:
        assert cancelled
        result = error.partial
    types = [event.type for event in result.events]

    assert 29.99 <= trio.current_time() - began < 30.05
    assert "tool_approval_expired" in types
    assert "tool_approval_denied" not in types
    assert result.status == ("cancelled" if cancelled else "completed")
    assert [call.id for call in adapter.ran] == ([] if cancelled else ["c2"])
    assert cancelled or adapter.answers["c1"].tell_model == "Nobody approved this call of tool 'bash' in time."


async def test_many_silent_runs_all_meet_their_deadlines(autojump_clock: object) -> None:
    """One task wakes them all."""
    async with Supervisor(MemoryStore(), max_running=500) as supervisor:
        handles = [
            await supervisor.start(
                FakeAdapter([Pause()]), "go", policies=[limited(max_duration_ms=1_000 * (n % 10 + 1))]
            )
            for n in range(200)
        ]
        for handle in handles:
            with pytest.raises(PolicyViolationError):
                await handle.wait()

    assert trio.current_time() < 10.1


async def test_an_approver_is_cancelled_when_the_approval_expires(autojump_clock: object) -> None:
    """The run continues. An open prompt would accept an answer without effect."""
    began, ended = trio.current_time(), []

    async def thinks(request: object) -> None:
        try:
            await trio.sleep(10_000)
        finally:
            ended.append(trio.current_time() - began)

    policy = Policy(name="p", on_violation="deny", tool_rules=ASKS, approval=Approval(timeout_s=30))
    await run_once(FakeAdapter([Ask(name="bash"), Pause(100)]), "go", policies=[policy], approver=thinks)

    assert ended == [pytest.approx(30, abs=0.05)]


MOST = 50 * TURN


class Flood(Speaking):
    """Reports events without a pause until `enough(count)`."""

    def __init__(self, enough: Callable[[int], bool]) -> None:
        super().__init__(name="flood")
        self._enough = enough
        self.reported = 0

    async def events(self) -> AsyncIterator[Event]:
        while not self._enough(self.reported) and self.reported < MOST:
            self.reported += 1
            yield MessageReceived(content="x")
        yield RunCompleted(output="done")


@pytest.mark.parametrize("floods", [1, 10])
async def test_a_deadline_is_kept_beside_agents_that_never_wait(
    floods: int, autojump_clock: trio.testing.MockClock
) -> None:
    """It is checked with the next event of any run. No agent reports a second one before the silent agent is
    cancelled.
    """
    silent = FakeAdapter([Pause()])
    since: dict[Any, int] = {}

    def enough(reported: int) -> bool:
        if not silent.launches:
            return False
        if not since:
            autojump_clock.jump(10)
            since.update((flood, flood.reported) for flood in flooding)
        return bool(silent.steps_taken)

    flooding = [Flood(enough) for _ in range(floods)]
    async with Supervisor(MemoryStore()) as supervisor:
        limited = Policy(name="limited", limits=Limits(max_idle_ms=5_000))
        handle = await supervisor.start(silent, "go", policies=[limited])
        await trio.testing.wait_all_tasks_blocked()
        for flood in flooding:
            await supervisor.start(flood, "go", policies=[OPEN])
        with pytest.raises(PolicyViolationError):
            await handle.wait()

    assert silent.steps_taken == ["interrupt"]
    assert [flood.reported - since[flood] <= 1 for flood in flooding] == [True] * floods


async def test_an_agent_that_never_waits_is_delayed_for_a_bounded_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """By a run whose end is slow to store. The agent is read again after 50 ms."""
    answers = trio.Event()
    silent, flood = FakeAdapter([Pause()]), Flood(lambda reported: False)
    async with Supervisor(Before(PolicyViolated, answers.wait)) as supervisor:
        limited = Policy(name="limited", limits=Limits(max_idle_ms=5_000))
        slow = await supervisor.start(silent, "go", policies=[limited], run_id="slow")
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(10)
        handle = await supervisor.start(flood, "go", policies=[OPEN])
        with trio.fail_after(4):
            await handle.wait()
        answers.set()
        with pytest.raises(PolicyViolationError):
            await slow.wait()

    assert flood.reported == MOST


@pytest.mark.parametrize("deaf", [0, 1])
async def test_an_agent_that_never_waits_is_not_delayed_once_the_other_is_cancelled(
    deaf: int, autojump_clock: object
) -> None:
    """However long that agent ignores it, or its end takes to be stored."""
    answers = trio.Event()
    silent, flood = FakeAdapter([Pause()], deaf=deaf), Flood(lambda reported: False)
    async with Supervisor(Before(RunCancelled, answers.wait)) as supervisor:
        slow = await supervisor.start(silent, "go", policies=[OPEN])
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as tasks:
            tasks.start_soon(slow.cancel)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            handle = await supervisor.start(flood, "go", policies=[OPEN])
            await handle.wait()
            took = trio.current_time() - began
            answers.set()

    assert (silent.closed, flood.reported) == (1, MOST)
    assert took == 0


async def test_a_run_queued_behind_another_of_its_session_is_retried_at_increasing_intervals(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt changes the store, and so wakes all that wait for it."""
    store = MemoryStore()
    owner = await store.register(Owner(owner_id="busy", host="elsewhere"), lease_s=3600)
    await store.create_run(RunInfo(run_id="first", session_id="s"), epoch=owner.epoch)
    await store.append([RunStarted(run_id="first", session_id="s", at=datetime.now(UTC))], epoch=owner.epoch)
    await create_run(store, "second", run_id="second", session_id="s")
    tries, register = 0, store.register

    async def counted(owner: Owner, *, lease_s: float) -> Owner:
        nonlocal tries
        tries += 1
        return await register(owner, lease_s=lease_s)

    monkeypatch.setattr(store, "register", counted)
    (outcome,) = await KillSwitch(store).kill(by="ana", run_id="second", wait_s=60)

    assert not outcome.ended
    assert 5 < tries < 20

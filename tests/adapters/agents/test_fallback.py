"""A fallback of several adapters: which is tried, and when no other is (docs: Fall back to another agent)."""

import math
from typing import Any

import anyio
import msgspec
import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from trio.testing import MockClock

from proctor.adapters import FallbackAdapter, FunctionAdapter, LoopGate
from proctor.adapters.agents.fallback import Breaker, Health
from proctor.policies import Capabilities, Deny, Limits, Policy, PolicyViolationError, Price
from proctor.policies import events as ev
from proctor.policies.events.run_context import tool
from proctor.supervisor import (
    EventError,
    MemoryStore,
    ProviderError,
    ProviderUnavailableError,
    Supervisor,
    UsageError,
    run_once,
)
from proctor.supervisor.errors import UnknownSessionError
from proctor.supervisor.testing import Ask, Crash, FakeAdapter, Pause

pytestmark = pytest.mark.anyio
OPEN = [Policy(name="open")]
GONE = ProviderError("overloaded")


def of_types(result: Any, *types: type[ev.Event]) -> list[Any]:
    return [event for event in result.events if isinstance(event, types)]


async def ran(adapter: FallbackAdapter, store: MemoryStore | None = None, **more: Any) -> Any:
    return await run_once(adapter, "go", policies=OPEN, store=store or MemoryStore(), **more)


@pytest.mark.parametrize("broken", [
    FakeAdapter([], unavailable=ProviderUnavailableError("not installed")),
    FakeAdapter([Crash(GONE)]),
    FakeAdapter([ev.MessageReceived(content="hm"), Crash(GONE)]),
    FakeAdapter([ev.RunFailed(error={"message": "overloaded"})]),
    FakeAdapter([Crash(RuntimeError("a bug"))]),
], ids=["unavailable", "crash", "after a message", "it says so", "a bug"])  # fmt: skip
async def test_a_failure_before_any_call_is_followed_by_the_next_agent(broken: FakeAdapter) -> None:
    """The event log names both agents."""
    result = await ran(FallbackAdapter([broken, FakeAdapter([Ask(name="a")])]))

    assert result.status == "completed"
    assert [event.tool_name for event in of_types(result, ev.ToolCallStarted)] == ["a"]
    assert [event.code for event in of_types(result, ev.ErrorOccurred)] == ["agent_failed"]
    assert [event.metadata["agent"] for event in of_types(result, ev.SessionStarted)][-1] == "fake-2"


async def test_a_call_that_ran_is_never_run_again() -> None:
    """A failure after an allowed call fails the run; the next agent would repeat the call."""
    second = FakeAdapter([Ask(name="pay")])
    first = FakeAdapter([Ask(name="pay"), Crash(GONE)])
    with pytest.raises(ProviderError, match="overloaded"):
        await ran(FallbackAdapter([first, second]))

    assert ([call.name for call in first.ran], second.launches) == (["pay"], [])


async def test_a_denied_call_did_not_run() -> None:
    """The next agent continues."""
    first = FakeAdapter([Ask(name="pay"), Crash(GONE)])
    adapter = FallbackAdapter([first, FakeAdapter([Ask(name="look")])])
    stack = [Policy(name="p", tool_rules=[Deny(["pay"], action="deny")])]
    result = await run_once(adapter, "go", policies=stack)

    assert [event.tool_name for event in of_types(result, ev.ToolCallStarted)] == ["look"]


async def test_tool_names_are_recognised_for_each_member() -> None:
    """A loop's tools are known by their usual names, also in a fallback."""

    async def loop(gate: LoopGate, prompt: str) -> None:
        await gate.tool(name="run_shell_command", refused="tell")(lambda command: pytest.fail("it ran"))("ls")

    adapter = FallbackAdapter([FunctionAdapter(loop), FunctionAdapter(loop)])
    result = await run_once(adapter, "go", policies=[Policy(name="p", tool_rules=[Deny(["bash"], action="deny")])])

    assert [violation.tool_name for violation in result.policy.violations] == ["run_shell_command"]


@pytest.mark.parametrize("gate", ["some", "none"])
async def test_an_agent_without_a_full_gate_is_not_replaced(gate: Any) -> None:
    """It may have run a call that it did not report."""
    second = FakeAdapter([])
    first = FakeAdapter([ev.MessageReceived(content="hm"), Crash(GONE)], gate=gate)
    with pytest.raises(ProviderError, match="overloaded"):
        await ran(FallbackAdapter([first, second]))

    assert second.launches == []


@pytest.mark.parametrize("when", ["before", "within"])
async def test_a_cancel_by_a_policy_is_no_failure_and_has_no_fallback(when: str) -> None:
    """Nor is an agent that fails during its cancel."""
    second = FakeAdapter([])
    steps: list[Any] = (
        [ev.TokenUsageUpdated(input_tokens=11), Pause()] if when == "within" else [Ask(name="x"), Pause()]
    )
    adapter = FallbackAdapter([FakeAdapter(steps), second], failures=1)
    stack = [Policy(name="p", limits=Limits(max_total_tokens=10), tool_rules=[Deny(["x"], action="cancel")])]
    with pytest.raises(PolicyViolationError):
        await run_once(adapter, "go", policies=stack)

    assert second.launches == []
    assert adapter.health()["fake"] == Health()


async def test_a_cancel_by_a_person_is_no_failure_and_has_no_fallback() -> None:
    second = FakeAdapter([])
    adapter = FallbackAdapter([FakeAdapter([ev.MessageReceived(content="hm"), Pause()]), second], failures=1)
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(adapter, "go", policies=OPEN)
        async with supervisor.subscribe(run_id=handle.run_id) as events:
            async for event in events:
                if isinstance(event, ev.MessageReceived):
                    break
        await handle.cancel(reason="enough")
        result = await handle.wait()

    assert (result.status, second.launches) == ("cancelled", [])
    assert adapter.health()["fake"] == Health()


async def test_if_every_member_has_failed_the_error_has_each_reason() -> None:
    """Not only the last one's."""
    adapter = FallbackAdapter([FakeAdapter([Crash(GONE)]), FakeAdapter([Crash(ProviderError("no credit"))])])
    with pytest.raises(ProviderUnavailableError, match="`fake`: overloaded; `fake-2`: no credit"):
        await ran(adapter)


@pytest.mark.trio
async def test_a_member_that_keeps_failing_is_skipped_and_then_tried_once(autojump_clock: object) -> None:
    """After another failure it is skipped again; after a success it is first again."""
    steps: list[Any] = [Crash(GONE)]
    first = FakeAdapter(steps)
    adapter = FallbackAdapter([first, FakeAdapter([])], failures=2, rest_s=60)
    tried: list[int] = []
    for wait in (0, 0, 0, 61, 0, 61, 0):
        await anyio.sleep(wait)
        if len(tried) == 5:
            first.steps = ()
        before = len(first.launches)
        await ran(adapter)
        tried.append(len(first.launches) - before)

    assert tried == [1, 1, 0, 1, 0, 1, 1]
    assert adapter.health()["fake"] == Health()


def test_a_member_that_failed_under_another_clock_is_tried_again() -> None:
    """Each `trio.run` has its own zero of time, and an adapter may be used in several."""
    first = FakeAdapter([Crash(GONE)])
    adapter = FallbackAdapter([first, FakeAdapter([])], failures=1, rest_s=60)
    late = MockClock(autojump_threshold=0)
    late.jump(1e6)
    trio.run(ran, adapter, clock=late)
    trio.run(ran, adapter, clock=MockClock(autojump_threshold=0))

    assert len(first.launches) == 2


@pytest.mark.trio
@pytest.mark.parametrize("gate", ["all", "none"])
async def test_a_member_that_works_again_is_used_by_others_while_its_run_is_active(
    gate: Any, autojump_clock: object
) -> None:
    """That may take hours. If it fails then, the member is skipped again."""
    first = FakeAdapter([Crash(GONE)], capabilities=Capabilities(gate=gate))
    adapter = FallbackAdapter([first, FakeAdapter([Crash(GONE)])], failures=1, rest_s=60)
    with pytest.raises(ProviderUnavailableError):
        await ran(adapter)
    await anyio.sleep(61)
    async with Supervisor(MemoryStore()) as supervisor:
        first.steps = (Ask(name="a"), Pause(7200), Crash(GONE))
        handle = await supervisor.start(adapter, "go", policies=OPEN)
        await anyio.sleep(1)
        first.steps = (Ask(name="b"),)
        assert (await ran(adapter)).status == "completed"
        with pytest.raises(ProviderError, match="overloaded"):
            await handle.wait()

    assert adapter.health()["fake"].closed_until is not None


async def test_a_session_stays_with_the_agent_that_ran_it_last() -> None:
    """By native resume if it can, and by replay elsewhere."""
    store = MemoryStore()
    broken: list[Any] = [Crash(GONE)]
    first = FakeAdapter(broken)
    started = ev.SessionStarted(provider_session_id="own-1")
    second = FakeAdapter(
        [started, ev.MessageReceived(content="hello")], capabilities=Capabilities(gate="all", resume=True)
    )
    adapter = FallbackAdapter([first, second])
    await ran(adapter, store, session_id="s")
    await ran(adapter, store, session_id="s")
    second.steps = (Crash(GONE),)
    first.steps = (ev.MessageReceived(content="I go on"),)
    await ran(adapter, store, session_id="s")

    assert [launch.resume for launch in second.launches] == [None, "own-1", "own-1"]
    assert len(first.launches) == 2
    assert first.launches[-1].resume is None
    assert "hello" in [getattr(event, "content", None) for event in first.launches[-1].transcript]


async def test_a_member_that_lost_the_session_continues_by_replay() -> None:
    """It works, so no other member is tried, and it counts as no failure."""
    store = MemoryStore()
    can_resume = Capabilities(gate="all", resume=True)
    session = [ev.SessionStarted(provider_session_id="own-1"), ev.MessageReceived(content="hello")]
    first = FakeAdapter(session, capabilities=can_resume, lacking=UnknownSessionError("no `own-1`"))
    second = FakeAdapter([])
    adapter = FallbackAdapter([first, second])
    await ran(adapter, store, session_id="s")
    result = await ran(adapter, store, session_id="s")

    assert [launch.resume for launch in first.launches] == [None, "own-1", None]
    assert "hello" in [getattr(event, "content", None) for event in first.launches[-1].transcript]
    assert (first.closed, second.launches) == (3, [])
    assert [event.code for event in of_types(result, ev.ErrorOccurred)] == ["unknown_session"]
    assert adapter.health()["fake"] == Health()


def total(tokens: int, cost: float | None = None) -> ev.TokenUsageUpdated:
    return ev.TokenUsageUpdated(scope="cumulative", input_tokens=tokens, cost_usd=cost)


@pytest.mark.parametrize("first", [
    [total(100, 1.0)],
    [ev.TokenUsageUpdated(input_tokens=60, cost_usd=0.5), total(100, 1.0)],
    [ev.TokenUsageUpdated(input_tokens=100, model="m")],
], ids=["a total", "a total that has what was told before it", "priced by the policy"])  # fmt: skip
async def test_counts_continue_over_members(first: list[Any]) -> None:
    """Totals that restart are added, and turn numbers continue."""
    second = [
        ev.TokenUsageUpdated(input_tokens=10, cost_usd=0.25),
        total(30, 0.5),
        ev.TurnCompleted(turn=1),
        total(40, 0.75),
    ]
    agents = [FakeAdapter([*first, ev.TurnCompleted(turn=1), Crash(GONE)]), FakeAdapter(second)]
    priced = Policy(
        name="p", limits=Limits(max_cost_usd=9), prices={"m": Price(input_usd_per_mtok=10_000, output_usd_per_mtok=0)}
    )
    result = await run_once(FallbackAdapter([FakeAdapter([Crash(GONE)]), *agents]), "go", policies=[priced])

    assert (result.usage.input_tokens, result.usage.cost_usd) == (140, 1.75)
    assert [event.turn for event in of_types(result, ev.TurnCompleted)] == [1, 2]


@pytest.mark.parametrize(("reports", "message"), [
    ([total(30), total(20)], "`input_tokens` is -10, which is not an amount"),
    ([total(30, 0.5), total(31, 0.25)], "`cost_usd` is -0.25, which is not an amount"),
    ([total(30, math.nan)], "`cost_usd` is nan, which is not an amount"),
    ([msgspec.structs.replace(total(30), event_id="no"), total(20)], "`input_tokens` is -10, which is not an amount"),
])  # fmt: skip
async def test_a_total_of_a_later_member_that_falls_ends_the_run(reports: list[Any], message: str) -> None:
    """As one of the first does. Otherwise, an agent that resets its counter would not be charged."""
    later = FakeAdapter(reports)
    with pytest.raises(EventError, match=message):
        await run_once(FallbackAdapter([FakeAdapter([Crash(GONE)]), later]), "go", policies=OPEN)


async def test_a_repeated_report_of_a_later_member_is_not_a_fall() -> None:
    """Nor is one of the same total."""
    reports = [
        msgspec.structs.replace(total(n), event_id=id) for n, id in ((30, "a"), (29, "a"), (30, "b"), (35, "c"))
    ]
    agents = [FakeAdapter([Crash(GONE)]), FakeAdapter([*reports, total(35, 0.1), total(35, 0.1)])]
    result = await run_once(FallbackAdapter(agents), "go", policies=OPEN)

    assert (result.usage.input_tokens, result.usage.cost_usd) == (35, 0.1)


@pytest.mark.parametrize("second", [
    [total(1, 0.3727), total(1, 0.9224), total(1, 0.9224)],
    [ev.TokenUsageUpdated(cost_usd=0.1), ev.TokenUsageUpdated(cost_usd=0.2), total(1, 0.3)],
], ids=["a total told twice", "deltas, then their total"])  # fmt: skip
async def test_rounding_of_a_later_agents_cost_is_not_a_fall(second: list[Any]) -> None:
    """Floating-point sums differ by less than a trillionth of a USD."""
    result = await run_once(FallbackAdapter([FakeAdapter([Crash(GONE)]), FakeAdapter(second)]), "go", policies=())

    assert result.usage.cost_usd == pytest.approx(second[-1].cost_usd)


async def test_a_total_of_a_later_agent_that_falls_counts_as_it_does_without_a_fallback() -> None:
    """What was counted stays counted, and the next total counts from there. The run goes on."""
    reports = [ev.TokenUsageUpdated(input_tokens=171, cost_usd=0.5), total(80, 0.25), total(284, 1.0)]
    alone = await run_once(FakeAdapter(reports), "go", policies=())
    fallback = FallbackAdapter([FakeAdapter([Crash(GONE)]), FakeAdapter(reports)])
    later = await run_once(fallback, "go", policies=())

    assert (alone.usage.input_tokens, alone.usage.cost_usd) == (284, 1.0)
    assert (later.usage, later.status) == (alone.usage, "completed")


async def test_its_capabilities_are_those_that_all_members_have() -> None:
    """Preflight gets the weakest. A tool that two members have has the inputs of both."""
    read = tool("read", "read", path="$.file_path")
    strong = Capabilities(gate="all", usage="per_turn", reports_cost=True, resume=True, tools=[read], model="m")
    weak = Capabilities(gate="some", usage="at_end", tools=[tool("Read", "read", path="$.name")], model="n")
    can_do = FallbackAdapter([able(strong), able(weak)]).capabilities

    assert (can_do.gate, can_do.usage, can_do.reports_cost, can_do.resume) == ("some", "at_end", False, False)
    assert (can_do.model, can_do.offered) == (None, None)
    assert can_do.table[0].inputs["path"] == ("$.file_path", "$.name")


def able(capabilities: Capabilities) -> FakeAdapter:
    return FakeAdapter([], capabilities=capabilities)


async def test_two_agents_with_different_tools_of_one_name_are_rejected() -> None:
    """A policy could not distinguish them."""
    one, other = (Capabilities(gate="all", tools=[tool(*named)]) for named in (("run", "bash"), ("Run", "task")))
    with pytest.raises(UsageError, match="mean different things"):
        FallbackAdapter([able(one), able(other)])


@pytest.mark.parametrize("given", [[], [FakeAdapter([])]])
async def test_a_fallback_needs_two_adapters(given: list[Any]) -> None:
    with pytest.raises(UsageError, match="two adapters"):
        FallbackAdapter(given)


MOST, REST_S = 3, 0.1


class Attempts(RuleBasedStateMachine):
    """Attempts start when they may, and succeed, fail or are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(MOST, REST_S)
        self.now = 0.0
        self.open: list[bool] = []
        self.in_a_row = 0
        self.rested_at: float | None = None

    @rule(by=st.sampled_from([0.0, 0.01, REST_S, 3 * REST_S]))
    def time_goes_by(self, by: float) -> None:
        self.now += by

    @rule()
    def begins(self) -> None:
        """An attempt, if it may start."""
        if self.breaker.may_try(self.now):
            self.open.append(self.breaker.begin(self.now))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), ok=st.sampled_from([True, False, None]))
    def ends(self, data: st.DataObject, ok: bool | None) -> None:
        """End an active attempt."""
        trial = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        before = self.breaker.health
        self.breaker.end(self.now, ok=ok, trial=trial)
        if ok:
            self.in_a_row, self.rested_at = 0, None
        elif ok is None:
            assert self.breaker.health.failures == before.failures
            assert self.breaker.health.closed_until == before.closed_until
        else:
            self.in_a_row += 1
            if trial or self.in_a_row >= MOST or self.rested_at is not None:
                self.rested_at = self.now

    @precondition(lambda self: any(self.open))
    @rule()
    def works(self) -> None:
        """The trial attempt succeeds."""
        self.open[self.open.index(True)] = False
        self.breaker.mark_working()
        self.rested_at = None

    @invariant()
    def it_rests_after_so_many_failures_in_a_row_and_for_so_long(self) -> None:
        rests = self.rested_at is not None and self.now < self.rested_at + REST_S
        assert not (rests and self.breaker.may_try(self.now))
        if self.rested_at is None:
            assert self.breaker.may_try(self.now)
        assert self.breaker.health.failures == self.in_a_row

    @invariant()
    def one_at_most_is_on_trial(self) -> None:
        assert sum(self.open) <= 1 or self.breaker.health.closed_until is None

    @invariant()
    def after_its_rest_it_is_tried_again(self) -> None:
        rested = self.rested_at is not None and self.now >= self.rested_at + REST_S
        if rested and not any(self.open):
            assert self.breaker.may_try(self.now)


TestAttempts = Attempts.TestCase
TestAttempts.settings = settings(max_examples=200, deadline=None)

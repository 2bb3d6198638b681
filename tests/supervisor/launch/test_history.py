"""A session of several runs: its past is replayed, passed to the agent and counted, even if the agent has lost it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from supervised import OPEN, around

from proctor.policies import Capabilities, Limits, Policy, RunContext, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.limits import Limit
from proctor.supervisor import MemoryStore, RunResult, Supervisor, UsageError, execute_run, run_once
from proctor.supervisor.api.run_once import create_run
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, StoreError, UnknownSessionError
from proctor.supervisor.ports.adapter import Launch, Provider
from proctor.supervisor.testing.fakes import Ask, FakeAdapter

pytestmark = pytest.mark.anyio

PAST = (
    ev.SessionStarted(provider_session_id="own-1"),
    ev.TurnStarted(turn=1),
    Ask(id="c1", name="read", turn=1),
    ev.TurnStarted(turn=2),
)


def resuming(steps: Any = (), name: str = "fake") -> FakeAdapter:
    return FakeAdapter(steps, capabilities=Capabilities(gate="all", resume=True), name=name)


async def two_runs(first: FakeAdapter, second: FakeAdapter, policy: Policy, **more: Any) -> Any:
    store = MemoryStore()
    one = await run_once(first, "go", policies=[policy], store=store)
    run_id = await create_run(store, "go on", session_id=one.session_id)
    return one, await execute_run(store, second, run_id, policies=[policy], **more)


@pytest.mark.parametrize(("second", "continuation", "resumes", "is_told"), [
    (resuming(), "auto", "own-1", False),
    (FakeAdapter(), "auto", None, True),
    (resuming(name="another"), "auto", None, True),
    (resuming(), "replay", None, True),
    (resuming(), "none", None, False),
])  # fmt: skip
async def test_a_session_is_resumed_natively_or_by_replay_or_not_at_all(
    second: FakeAdapter, continuation: Any, resumes: str | None, is_told: bool
) -> None:
    """`auto` resumes natively if the adapter can and ran the session before. The caller's choice overrides it."""
    one, _ = await two_runs(resuming(PAST), second, OPEN, continuation=continuation)

    assert (second.launches[-1].resume, second.launches[-1].transcript) == (resumes, one.events if is_told else ())


async def test_an_impossible_continuation_is_an_error_before_the_start() -> None:
    """Native without support, native without a session, and unknown words."""
    adapter = FakeAdapter()
    for continuation, given in (("native", adapter), ("often", adapter), ("native", resuming())):
        with pytest.raises(UsageError):
            await run_once(given, "go", policies=[OPEN], continuation=continuation)  # type: ignore[arg-type]
        assert given.launches == []


async def test_turn_numbers_continue_through_the_session() -> None:
    """An adapter numbers each run from 1; the event log continues."""
    second = FakeAdapter([ev.TurnStarted(turn=1), Ask(id="d1", name="read", turn=1), ev.TurnStarted(turn=2)])
    _, result = await two_runs(FakeAdapter(PAST), second, OPEN)
    turns = [event.turn for event in result.events if isinstance(event, (ev.TurnStarted, ev.ToolCallStarted))]

    assert turns == [3, 3, 4]


async def test_rules_apply_to_the_session_and_run_limits_to_each_run() -> None:
    """A call started in the first run is evidence in the second. Run limits start again."""
    from proctor.policies.reading import parse_policies

    (policy,) = parse_policies(
        """
        name: p
        on_violation: deny
        limits: {max_tool_calls: 1}
        rules: [{type: before, first: read, then: write}]
        """
    )
    second = FakeAdapter([Ask(id="d1", name="write"), Ask(id="d2", name="read")])
    await two_runs(FakeAdapter([Ask(id="c1", name="read")]), second, policy)

    assert [call.id for call in second.ran] == ["d1"]


async def test_a_run_that_ends_before_the_session_is_claimed_counts() -> None:
    """The past was read before it: it is read again."""
    policy = Policy(name="p", on_violation="deny", limits=Limits(max_tool_calls=Limit(max=1, scope="session")))
    options: Any = {"policies": [policy], "session_id": "s"}
    first, second = FakeAdapter([Ask(name="read")]), FakeAdapter([Ask(name="read")])

    async def create(usual: Any, run: Any, **owned: Any) -> Any:
        if run.run_id == "second":
            await run_once(first, "go", store=store, **options)
        return await usual(run, **owned)

    store = around(create_run=create)
    await run_once(second, "go", store=store, run_id="second", **options)

    assert (len(first.ran), len(second.ran)) == (1, 0)


async def test_a_run_cannot_be_executed_twice() -> None:
    """Executing an unknown or a started run is an error."""
    store = MemoryStore()
    run_id = await create_run(store, "go", metadata={"ticket": 7})
    adapter = FakeAdapter()
    result = await execute_run(store, adapter, run_id, policies=[OPEN])
    started = next(event for event in result.events if isinstance(event, ev.RunStarted))

    assert (result.run_id, adapter.launches[0].prompt) == (run_id, "go")
    assert started.metadata["ticket"] == 7
    for bad, message in ((run_id, "completed"), ("nothing", "no run")):
        with pytest.raises(UsageError, match=message):
            await execute_run(store, adapter, bad, policies=[OPEN])


CAN_RESUME = Capabilities(gate="all", resume=True, usage="per_turn")
FIRST = (
    ev.SessionStarted(provider_session_id="own-1"),
    ev.TurnStarted(turn=1),
    ev.TokenUsageUpdated(scope="cumulative", input_tokens=100),
    Ask(id="c1", name="read", turn=1),
)
LATER = (
    ev.SessionStarted(provider_session_id="own-2"),
    ev.TurnStarted(turn=1),
    ev.TokenUsageUpdated(scope="cumulative", input_tokens=7),
    Ask(id="d1", name="write", turn=1),
)


def gone() -> UnknownSessionError:
    return UnknownSessionError("the client does not know `own-1`", details={"said": "No such session"})


def lacking(error: Exception | None = None, steps: Any = LATER, **more: Any) -> FakeAdapter:
    """An agent that has lost the session of the first run."""
    return FakeAdapter(steps, capabilities=CAN_RESUME, lacking=error or gone(), **more)


async def first_run(policy: Policy, kind: type[MemoryStore] = MemoryStore) -> tuple[Any, RunResult]:
    store = kind()
    agent = FakeAdapter(FIRST, capabilities=CAN_RESUME)
    return store, await run_once(agent, "remember 7", policies=[policy], store=store, session_id="s")


class Grouping(FakeAdapter):
    """An agent whose errors come from a task group."""

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        async with anyio.create_task_group(), super()._opened(launch) as provider:
            yield provider


@pytest.mark.parametrize("kind", [FakeAdapter, Grouping])
async def test_a_lost_native_session_is_replaced_by_a_replay_and_recorded(kind: type[FakeAdapter]) -> None:
    """The agent gets the past without the current prompt: one start, one prompt, one end.

    The next run resumes the new native session.
    """
    store, one = await first_run(OPEN)
    later = kind(LATER, capabilities=CAN_RESUME, lacking=gone())
    two = await run_once(later, "which?", policies=[OPEN], store=store, session_id="s")
    events = [event async for event in store.read("s") if event.run_id == two.run_id]
    third = FakeAdapter(capabilities=CAN_RESUME)
    await run_once(third, "and now?", policies=[OPEN], store=store, session_id="s")

    assert (two.status, [call.id for call in later.ran]) == ("completed", ["d1"])
    assert [(launch.resume, launch.transcript) for launch in later.launches] == [("own-1", ()), (None, one.events)]
    assert later.launches[1].load_transcript is None
    assert later.closed == 2
    [started] = [event for event in events if isinstance(event, ev.RunStarted)]
    [error] = [event for event in events if isinstance(event, ev.ErrorOccurred)]
    assert started.metadata["continuation"] == "native"
    assert (error.code, error.provider_error) == ("unknown_session", {"said": "No such session"})
    assert (
        error.message == "the client does not know `own-1`: the agent starts a new one, with the conversation so far"
    )
    assert [event.content for event in events if isinstance(event, ev.MessageSent)] == ["which?"]
    assert len([event for event in events if isinstance(event, ev.TERMINAL)]) == 1
    assert [launch.resume for launch in third.launches] == ["own-2"]


async def test_usage_and_turns_of_a_restarted_agent_count_once() -> None:
    """The agent counts from 0 in its new session, and the session's turns continue. Replaying the log gives the live
    state.
    """
    policy = Policy(name="p", limits=Limits(max_tool_calls=3, max_turns=5))
    store, _ = await first_run(policy)
    two = await run_once(lacking(), "which?", policies=[policy], store=store, session_id="s")
    monitor = compile_policy(merge_policies([policy])).monitor(RunContext())
    async for event in store.read("s"):
        monitor.observe(event)

    assert two.usage.input_tokens == 7
    assert [event.turn for event in two.events if isinstance(event, ev.ToolCallStarted)] == [2]
    assert monitor.usage == two.usage
    assert monitor.finish().rules == two.policy.rules


async def test_native_never_falls_back_to_a_replay() -> None:
    """The error names the alternatives."""
    store, _ = await first_run(OPEN)
    later = lacking()
    with pytest.raises(UnknownSessionError, match="`own-1`; the continuation `replay` gives it the conversation"):
        await run_once(later, "go", policies=[OPEN], store=store, session_id="s", continuation="native")

    assert (len(later.launches), later.closed) == (1, 1)


class Twice(FakeAdapter):
    """An agent that never starts."""

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        async with super()._opened(replace(launch, resume="own-1")) as provider:
            yield provider


class Late(FakeAdapter):
    """An agent that has already started when it fails."""

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        async with super()._opened(launch) as provider:
            yield provider
            if self.ran:
                raise gone()


@pytest.mark.parametrize(("agent", "error", "opened", "ran"), [
    (lambda: lacking(ProviderError("no network")), ProviderError, 1, []),
    (lambda: lacking(ProviderUnavailableError("not logged in")), ProviderUnavailableError, 1, []),
    (lambda: Twice(capabilities=CAN_RESUME, lacking=gone()), UnknownSessionError, 2, []),
    (lambda: Late(LATER, capabilities=CAN_RESUME), UnknownSessionError, 1, ["d1"]),
], ids=["no network", "not logged in", "will not begin at all", "has begun"])  # fmt: skip
async def test_an_agent_is_restarted_only_once_and_only_if_its_session_is_gone_and_nothing_has_started(
    agent: Callable[[], FakeAdapter], error: type[Exception], opened: int, ran: list[str]
) -> None:
    """An unreachable agent may still have the session, and a started one would repeat its actions."""
    store, _ = await first_run(OPEN)
    later = agent()
    with pytest.raises(error) as raised:
        await run_once(later, "go", policies=[OPEN], store=store, session_id="s")

    assert (type(raised.value), len(later.launches), later.closed) == (error, opened, opened)
    assert [call.id for call in later.ran] == ran


class Hanging(FakeAdapter):
    """An agent whose second start never finishes."""

    def __init__(self) -> None:
        super().__init__(capabilities=CAN_RESUME, lacking=gone())
        self.opening = anyio.Event()

    @asynccontextmanager
    async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
        async with super()._opened(launch) as provider:
            self.opening.set()
            await anyio.sleep_forever()
            yield provider


async def test_a_restarting_agent_can_be_cancelled() -> None:
    store, _ = await first_run(OPEN)
    later = Hanging()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(later, "go", policies=[OPEN], session_id="s")
        await later.opening.wait()
        await handle.cancel(reason="enough")
        result = await handle.wait()

    assert (result.status, later.closed, later.ran) == ("cancelled", 2, [])


class Unreadable(MemoryStore):
    """A store whose events can't be read for some time."""

    down = False

    async def read(self, session_id: str, **where: Any) -> AsyncIterator[Any]:
        if self.down:
            raise StoreError("the disk is gone")
        async for event in super().read(session_id, **where):
            yield event


async def test_a_past_that_cannot_be_read_fails_the_run() -> None:
    """An agent must not continue as if it had no past."""
    store, _ = await first_run(OPEN, Unreadable)

    class Failing(FakeAdapter):
        @asynccontextmanager
        async def _opened(self, launch: Launch) -> AsyncIterator[Provider]:
            store.down = True
            async with super()._opened(launch) as provider:
                yield provider

    later = Failing(LATER, capabilities=CAN_RESUME, lacking=gone())
    with pytest.raises(StoreError, match="the disk is gone"):
        await run_once(later, "go on", policies=[OPEN], store=store, session_id="s")
    store.down = False
    ends = [event.type async for event in store.read("s") if isinstance(event, ev.TERMINAL)]

    assert (ends, len(later.launches), later.ran) == (["run_completed", "run_failed"], 1, [])

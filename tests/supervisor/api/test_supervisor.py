"""A supervisor of many runs: bounded, observed, cancelled together, and none lost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from supervised import OPEN, held_up

from proctor.policies import parse_policies
from proctor.policies.events import TERMINAL, Event, MessageReceived
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import MemoryStore, PolicyViolationError, ProctorError, Supervisor, UsageError, run_once
from proctor.supervisor.run.services import Clock
from proctor.supervisor.testing.fakes import PATIENCE_S, Ask, FakeAdapter, Pause
from proctor.supervisor.watch.subscriptions import Subscriptions

pytestmark = pytest.mark.anyio


def saying(n: int) -> FakeAdapter:
    return FakeAdapter([MessageReceived(content=str(i)) for i in range(n)])


async def test_no_more_runs_are_active_at_once_than_the_maximum() -> None:
    """`start` waits for a free slot, and every run completes."""
    now, most = 0, 0
    go_on = anyio.Event()

    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await go_on.wait()
        now -= 1

    async def start_all() -> None:
        for _ in range(10):
            adapter = FakeAdapter([Ask(name="read", meanwhile=work)])
            await supervisor.start(adapter, "go", policies=[OPEN])

    async with Supervisor(MemoryStore(), max_running=3) as supervisor, anyio.create_task_group() as tasks:
        tasks.start_soon(start_all)
        await anyio.wait_all_tasks_blocked()
        go_on.set()

    assert most == 3
    assert supervisor.statistics().completed == 10


async def test_runs_that_wait_for_their_child_runs_do_not_count() -> None:
    """Two runs start two child runs each at once, one of which starts another through its own supervisor; two more
    are active beside those that wait. A child run that its agent does not wait for counts once its parent has ended.
    """
    supervisor = Supervisor(MemoryStore(), max_running=2)
    busy: list[str] = []
    most = 0

    async def leaf() -> None:
        nonlocal most
        busy.append("")
        most = max(most, len(busy))
        await anyio.wait_all_tasks_blocked()
        busy.pop()

    async def start(meanwhile: Callable[[], Awaitable[None]]) -> None:
        adapter = FakeAdapter([Ask(name="read", meanwhile=meanwhile)])
        await (await supervisor.start(adapter, "go", policies=[OPEN])).wait()

    async def through_another() -> None:
        await run_once(FakeAdapter([Ask(name="read", meanwhile=partial(start, leaf))]), "go", policies=[OPEN])

    async def fan_out(*below: Callable[[], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as tasks:
            for one in below:
                tasks.start_soon(start, one)

    async with supervisor:
        await fan_out(*[partial(fan_out, leaf, through_another)] * 2)
        assert supervisor.statistics().completed == 8
        await fan_out(*[leaf] * 9)

    assert most == 2
    assert supervisor.statistics().completed == 17


@settings(max_examples=40)
@given(plan=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans()), max_size=25))
def test_a_subscriber_gets_every_event_once_at_any_pace(plan: list[tuple[int, int, bool]]) -> None:
    """Several sessions write, and the subscriber pauses at random, with a buffer of two."""
    anyio.run(_paced, plan)


async def _paced(plan: list[tuple[int, int, bool]]) -> None:
    store = MemoryStore()
    seen: list[tuple[str, int]] = []
    written: list[tuple[str, int]] = []
    hub = Subscriptions(store)
    may_read = anyio.Semaphore(0)

    async def listen() -> None:
        async for event in hub.subscribe(capacity=2):
            seen.append((event.session_id, event.seq))
            await may_read.acquire()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        for number, count, read in plan:
            events = await store.append(
                [MessageReceived(session_id=f"s{number}", run_id="r", content=n) for n in range(count)]
            )
            written += [(event.session_id, event.seq) for event in events]
            hub.follower.publish(events, 0)
            if read:
                may_read.release()
                await anyio.wait_all_tasks_blocked()
        hub.close()
        for _ in written:
            may_read.release()

    assert sorted(seen) == sorted(written)
    for session in {name for name, _ in written}:
        order = [place for name, place in seen if name == session]
        assert order == sorted(order)


async def test_all_subscriptions_end_with_the_supervisor() -> None:
    """They deliver the remaining events first."""
    seen: dict[str, list[Event]] = {"all": [], "session": []}

    async def watch(supervisor: Supervisor, name: str, **what: Any) -> None:
        async for event in supervisor.subscribe(**what):
            seen[name].append(event)

    async with anyio.create_task_group() as tasks, Supervisor(MemoryStore()) as supervisor:
        tasks.start_soon(watch, supervisor, "all")
        tasks.start_soon(lambda: watch(supervisor, "session", session_id="s"))
        await anyio.wait_all_tasks_blocked()
        await supervisor.start(saying(5), "go", policies=[OPEN], session_id="s")

    assert seen["all"] == seen["session"]
    assert isinstance(seen["all"][-1], TERMINAL)


class Text(str):
    """Text of another class, as numpy has."""


@pytest.mark.parametrize(("given", "message"), [
    ({"adapter": None}, r"`adapter` is None, not an adapter; for example .* or `PydanticAIAdapter\(agent\)`"),
    ({"adapter": "claude"}, "`adapter` is a value of type `str`, not an adapter"),
    ({"adapter": FakeAdapter}, "`adapter` is the class `FakeAdapter`, not an adapter"),
    ({"adapter": SimpleNamespace(capabilities=None)}, "the adapter `SimpleNamespace` has no method `prepare`"),
    ({"prompt": None}, "`prompt` is None, not text"),
    ({"prompt": b"go"}, "`prompt` is a value of type `bytes`, not text"),
    ({"context": {"tenant": "acme"}}, "`context` is a value of type `dict`, not a `RunContext`"),
    ({"metadata": "x"}, "`metadata` is a value of type `str`, not a mapping"),
    ({"run_id": 3}, "`run_id` is a value of type `int`, not text"),
    ({"session_id": ""}, "`session_id` is empty"),
    ({"session_id": "a\ud800"}, "`session_id` is not UTF-8 text"),
    *(({name: Text("x")}, f"`{name}` is a value of type `Text`; use the plain text")
        for name in ("prompt", "session_id", "run_id")),
    ({"approver": "ana"}, "`approver` is a value of type `str`, not a function"),
    ({"publishers": [None]}, "`publishers` is a list of functions"),
    ({"publishers": print}, "`publishers` is a list of functions"),
    ({"store": []}, "`store` is a value of type `list`, not a store"),
    ({"store": MemoryStore}, "`store` is the class `MemoryStore`, not a store"),
    ({"store": "runs.db"}, "`store` is a value of type `str`, not a store"),
    ({"policies": 3}, "`policies` is a value of type `int`, not a list of policies"),
    ({"policies": []}, "`policies` is an empty list"),
    ({"policies": Policy(name="p")}, "`policies` is one policy"),
    ({"policies": [{}]}, "`policies\\[0\\]` is a value of type `dict`, not a policy; `parse_policies` reads it"),
    ({"policies": "org.yaml"}, "not a list of policies; `load_policies\\(path\\)` reads a file"),
    ({"policies": [[Policy(name="p")]]}, "not a policy; put its policies into the list: `\\[\\*policies, ...\\]`"),
    ({"policies": None, "policy": "org.yaml"}, "`policy` is a value of type `str`, not a policy; `load_policies"),
])  # fmt: skip
async def test_an_argument_of_the_wrong_type_is_an_error(given: dict[str, Any], message: str) -> None:
    """Nothing is started."""
    good: dict[str, Any] = {"adapter": saying(1), "prompt": "go", "policies": [OPEN]}
    with pytest.raises(ProctorError, match=message):
        await run_once(**(good | given))


async def test_an_invalid_argument_is_an_error() -> None:
    """The message says why."""
    for most in (0, "3", None, 1.5, True):
        with pytest.raises(UsageError, match="max_running"):
            Supervisor(MemoryStore(), max_running=most)  # type: ignore[arg-type]
    supervisor = Supervisor(MemoryStore())
    with pytest.raises(UsageError, match="not open"):
        await supervisor.start(saying(1), "go", policies=[OPEN])


async def test_starting_a_run_from_another_event_loop_is_an_error() -> None:
    """The run would end with that loop, unnoticed."""
    async with Supervisor(MemoryStore()) as supervisor:
        start = partial(supervisor.start, FakeAdapter([Pause()]), "go", policies=[OPEN])
        with pytest.raises(UsageError, match="another event loop"):
            await anyio.to_thread.run_sync(anyio.run, start)

    assert supervisor.statistics().started == 0


@pytest.mark.parametrize("what", ["register", "create_run"])
async def test_a_run_whose_supervisor_closes_during_registration_does_not_start(what: str) -> None:
    """Its caller gets an error, and no lease is kept."""
    store, begun, goes_on = held_up(what)
    adapter, supervisor = FakeAdapter(), Supervisor(store)

    async def start() -> None:
        with pytest.raises(UsageError, match="not open"):
            await supervisor.start(adapter, "go", policies=[OPEN])

    async with anyio.create_task_group() as tasks:
        async with supervisor:
            tasks.start_soon(start)
            await begun.wait()
        goes_on.set()

    assert adapter.launches == []
    assert supervisor.statistics().running == 0
    assert store._claims._until == {}


async def test_a_start_whose_task_cannot_begin_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session is free, its run has ended, and the supervisor can be closed."""

    def broken(_: object) -> None:
        raise MemoryError("no room for a task")

    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        with monkeypatch.context() as patched:
            patched.setattr("proctor.supervisor.api.supervisor.spawn", broken)
            with pytest.raises(MemoryError):
                await supervisor.start(FakeAdapter(), "go", policies=[OPEN], run_id="r", session_id="s")
        given_up = await store.run("r")
        handle = await supervisor.start(FakeAdapter(), "go", policies=[OPEN], session_id="s")
        result = await handle.wait()

    assert given_up is not None
    assert given_up.status == "cancelled"
    assert result.status == "completed"
    assert supervisor.statistics().started == 1


async def test_cancel_all_includes_a_run_that_is_starting() -> None:
    """It ends as soon as it has started."""
    store, begun, goes_on = held_up("create_run")

    async def start() -> None:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[OPEN])
        assert (await handle.wait()).reason == "enough"

    async with Supervisor(store) as supervisor, anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await begun.wait()
        await supervisor.cancel_all("enough")
        goes_on.set()

    assert supervisor.statistics().cancelled == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_run_started_after_the_machine_slept_has_the_right_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system knows of no sleep and only the wall clock went on. A run that was active keeps its clock
    then, for its deadlines.
    """
    real, hours = time.time, list[int]()
    async with Supervisor(MemoryStore()) as supervisor:
        for slept_s in (0, 3 * 3600):
            monkeypatch.setattr(time, "time", lambda slept_s=slept_s: real() + slept_s)
            result = await (await supervisor.start(saying(1), "go", policies=[OPEN])).wait()
            hours += {round((event.at.timestamp() - real()) / 3600) for event in result.events if event.at}

    assert hours == [0, 3]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_request_that_is_made_after_the_machine_slept_can_be_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a run that was active before. The moments of its events are those of the day, and its request has not
    expired for those who answer.
    """
    asleep, of_day, of_system = [3 * 3600.0], time.time, time.clock_gettime
    monkeypatch.setattr(time, "time", lambda: of_day() - asleep[0])
    monkeypatch.setattr(time, "clock_gettime", lambda which: of_system(which) - asleep[0])
    policies = parse_policies("{name: p, rules: [{type: blocklist, tools: [bash], action: request_approval}]}")

    async def wakes() -> None:
        asleep[0] = 0.0

    agent = FakeAdapter([Ask(name="read", meanwhile=wakes), Ask(name="bash", id="c1")])
    async with Supervisor(MemoryStore()) as supervisor:
        handle = await supervisor.start(agent, "go", policies=policies)
        await anyio.wait_all_tasks_blocked()
        (request,) = supervisor.approvals()
        await supervisor.approve(request.approval_id, by="ana")
        result = await handle.wait()

    assert [call.name for call in agent.ran] == ["read", "bash"]
    assert result.events[-1].at is not None
    assert abs(result.events[-1].at.timestamp() - of_day()) < PATIENCE_S


class OwnLoop(asyncio.SelectorEventLoop):
    """A loop with a method of its own for the time, as uvloop's has."""

    def __init__(self, begins_at: float = 0.0) -> None:
        self._before = begins_at and time.monotonic() - begins_at
        super().__init__()

    def time(self) -> float:
        return time.monotonic() - self._before


@pytest.mark.parametrize(("begins_at", "hours"), [(0.0, 3), (7.0, 0)], ids=["system's", "virtual"])
def test_the_clock_of_another_event_loop_follows_the_day_as_well(
    begins_at: float, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If that loop goes by the system's clock; one of a test's own is left alone."""
    of_day = time.time

    async def followed() -> int:
        clock = Clock()
        monkeypatch.setattr(time, "time", lambda: of_day() + 3 * 3600)
        clock.follow()
        return round((clock.now_ms() / 1000 - of_day()) / 3600)

    with asyncio.Runner(loop_factory=lambda: OwnLoop(begins_at)) as runner:
        assert runner.run(followed()) == hours


async def test_a_policy_is_checked_again_for_an_adapter_that_can_do_less_than_before() -> None:
    """Runs with the same policies share what was compiled of them, as long as their adapter can do the same."""
    policy = Policy(name="p", enforcement="required", tool_rules=[Deny(["rm"], action="deny")])
    adapter = FakeAdapter()
    async with Supervisor(MemoryStore()) as supervisor:
        await (await supervisor.start(adapter, "go", policies=[policy])).wait()
        adapter._capabilities = FakeAdapter(gate="none").capabilities
        with pytest.raises(PolicyViolationError):
            await supervisor.start(adapter, "go", policies=[policy])

    assert len(adapter.launches) == 1

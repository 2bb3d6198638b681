"""The journal, which writes a run's events to the store: when it retries, and what remains unstored."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing

from proctor.policies import Event, RunContext, compile_policy, merge_policies, parse_policies
from proctor.policies.events import MessageReceived, RunCompleted, RunFailed
from proctor.supervisor import MemoryStore, StoreError
from proctor.supervisor.errors import StoreErrorKind
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.stored_types import Owner
from proctor.supervisor.run.journal import ANSWER_S, CAPACITY, CAPACITY_BYTES, Journal

pytestmark = pytest.mark.trio
FULL = StoreError("the disk is full", kind="unwritable")


class ScriptedStore(MemoryStore):
    """A store that does with each append what its script says: fail, be slow, be silent, or store."""

    def __init__(self, *does: Exception | str) -> None:
        super().__init__()
        self.does = [*does]
        self.appends: list[tuple[float, list[str]]] = []
        self.refuses: Any = ()
        self.unsettled: StoreError | None = None

    async def settle(self, *used: Any, **owned: Any) -> Any:
        self.appends.append((round(trio.current_time(), 3), ["settled"]))
        if self.unsettled is not None:
            raise self.unsettled

    async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
        self.appends.append((round(trio.current_time(), 3), [event.type for event in events]))
        does = self.does.pop(0) if self.does else "stores"
        if isinstance(does, Exception):
            raise does
        if does == "is slow":
            await trio.sleep(30)
        if does == "is silent":
            await trio.sleep_forever()
        if any(isinstance(event, self.refuses) for event in events):
            raise StoreError("no such record", kind="bad_record")
        stored = await super().append(events, **owned)
        if does == "stores and is silent":
            await trio.sleep_forever()
        if does == "stores and is slow":
            await trio.sleep(30)
        if does == "stores and takes a moment":
            await trio.sleep(1)
        return stored


class Written:
    """A journal with such a store, and what it reported."""

    def __init__(self, store: ScriptedStore) -> None:
        (policy,) = parse_policies({"version": 1, "name": "p", "limits": {"max_turns": 99}})
        monitor = compile_policy(merge_policies([policy])).monitor(RunContext())
        self.machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x"), monitor)
        self.machine.handle(interface.Begin(now_ms=1, prompt="go"))
        self.slept_ms = 0
        self.stored: list[int] = []
        self.failures: list[str] = []
        self.published: list[tuple[list[str], int]] = []
        self.journal = Journal(store, self.machine.outbox, 0, self)

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000) + self.slept_ms

    def durable(self, count: int) -> None:
        self.stored.append(count)

    def new(self, events: list[Event], size: int) -> None:
        self.published.append(([event.type for event in events], size))

    def failed(self, error: Exception) -> None:
        self.failures.append(str(error))

    def says(self, *events: Event) -> None:
        for event in events:
            self.machine.handle(interface.Reported(now_ms=2, event=event))

    def ends(self) -> None:
        """The provider has completed and exited."""
        self.says(RunCompleted(output="done"))
        self.machine.handle(interface.AdapterEnded(now_ms=3))

    def types(self) -> list[str]:
        return [type for types, _ in self.published for type in types]


BEGUN = ["session_created", "run_started", "message_sent"]


async def waits_until_flushed(run: Written, wait: Callable[[], Awaitable[object]]) -> tuple[bool, bool]:
    """Whether the function waits before a flush, and returns after it."""
    went_on = trio.Event()

    async def go_on() -> None:
        await wait()
        went_on.set()

    async with trio.open_nursery() as tasks:
        tasks.start_soon(go_on)
        await trio.testing.wait_all_tasks_blocked()
        waited = not went_on.is_set()
        await run.journal.flush()
    return waited, went_on.is_set()


async def test_stored_events_are_reported_once_with_their_size() -> None:
    """Then nothing remains unstored."""
    run = Written(ScriptedStore())
    size = run.machine.outbox.unwritten_bytes
    await run.journal.flush()
    run.says(MessageReceived(content="hello"))
    await run.journal.flush()

    assert run.stored == [3, 4]
    assert run.published[0] == (BEGUN, size)
    assert run.types() == [*BEGUN, "message_received"]
    assert (run.journal.idle, run.journal.failure, run.journal.unsettled, run.failures) == (True, None, False, [])


async def test_a_failed_append_is_reported_and_still_unstored() -> None:
    """The journal is never idle again: it writes nothing after the gap, and no provider waits for it."""
    run = Written(ScriptedStore(FULL))
    await run.journal.flush()

    assert (run.journal.idle, run.journal.failure, run.journal.unsettled) == (False, FULL, True)
    assert (run.failures, run.stored, run.published) == (["the disk is full"], [], [])

    run.says(*[MessageReceived(content="x")] * CAPACITY)
    with trio.fail_after(5):
        await run.journal.wait_for_capacity()
        assert await run.journal.drained() is None


@pytest.mark.parametrize("failures", [0, 1, 8])
async def test_an_ended_run_retries_with_increasing_delays(failures: int, autojump_clock: object) -> None:
    """After one second, then twice as long each time, up to thirty seconds."""
    store = ScriptedStore(*[FULL] * (failures + 1))
    run = Written(store)
    await run.journal.flush()
    began = trio.current_time()
    await run.journal.settle()
    times = [at - began for at, _ in store.appends[1:]]

    waited = [1, 2, 4, 8, 16, 30, 30, 30, 30][: failures + 1]
    assert times == [sum(waited[: n + 1]) for n in range(failures + 1)]
    assert (run.journal.unsettled, run.types()) == (False, BEGUN)


@pytest.mark.parametrize(
    "kind", ["closed", "bad_record", "fenced", "run_over", "call_started", "conflict", "gone", "truncated", "forked"]
)
async def test_a_permanent_error_of_the_store_is_not_retried(kind: StoreErrorKind, autojump_clock: object) -> None:
    """The log keeps its gap, and the events stay unstored."""
    store = ScriptedStore(FULL, FULL, StoreError("never", kind=kind))
    run = Written(store)
    await run.journal.flush()
    await run.journal.settle()

    assert len(store.appends) == 3
    assert run.journal.unsettled


async def test_a_silent_store_counts_as_failed_until_it_answers(autojump_clock: object) -> None:
    """A caller continues with an error after its timeout. Nothing is appended again meanwhile.

    Bytes that are being written count as unwritten, so a slow store also holds the provider.
    """
    store = ScriptedStore("is silent")
    run = Written(store)
    async with trio.open_nursery() as tasks:
        run.machine.outbox.unwritten_bytes = CAPACITY_BYTES
        tasks.start_soon(run.journal.flush)
        await trio.testing.wait_all_tasks_blocked()
        assert (run.machine.outbox.unwritten_bytes, run.journal.over_capacity) == (0, True)
        began = trio.current_time()
        error = await run.journal.drained(2)
        took = trio.current_time() - began
        owes = run.journal.unsettled
        with pytest.raises(StoreError, match="has not answered for 45 seconds"):
            await run.journal.retry()
        retried = trio.current_time() - began - took
        tasks.cancel_scope.cancel()

    assert str(error) == "the store has not answered for 2 seconds"
    assert (took, retried, owes) == (2, ANSWER_S, True)
    assert len(store.appends) == 1


async def test_a_retry_stores_the_missing_events_and_the_end_as_one_unit() -> None:
    """It reports no rejected event."""
    store = ScriptedStore(FULL)
    run = Written(store)
    await run.journal.flush()
    run.ends()

    assert await run.journal.retry() is None
    assert [types for _, types in store.appends] == [BEGUN, [*BEGUN, "run_completed"]]
    assert run.types() == [*BEGUN, "run_completed"]
    assert not run.journal.unsettled


OVER = StoreError("the run is over", kind="run_over")


@pytest.mark.parametrize(("append", "settle", "raises", "asks"), [
    ("stores", None, None, [BEGUN, ["settled"], [*BEGUN, "run_completed"]]),
    ("stores", OVER, None, [BEGUN, ["settled"], [*BEGUN, "run_completed"]]),
    ("stores", FULL, FULL, [BEGUN, ["settled"]]),
    (FULL, None, FULL, [BEGUN]),
])  # fmt: skip
async def test_a_retry_settles_shared_budgets_before_it_stores_the_end(
    append: StoreError | str, settle: StoreError | None, raises: StoreError | None, asks: list[list[str]]
) -> None:
    """If settling fails, so does the retry, and the end is not stored; `run_over` is ignored. A run whose events are
    all stored is not settled again.
    """
    store = ScriptedStore(FULL, append)
    run = Written(store)
    run.journal.used, store.unsettled = {"cost_usd": 1.0}, settle
    await run.journal.flush()
    run.ends()
    raised = None
    try:
        await run.journal.retry()
        run.journal.abandon(FULL)
        await run.journal.retry()
    except StoreError as error:
        raised = error

    assert raised is raises
    assert [types for _, types in store.appends[1:] if types] == asks


async def test_if_an_event_is_rejected_each_is_stored_alone_but_the_end() -> None:
    """The first rejection is reported."""
    store = ScriptedStore(FULL)
    store.refuses = MessageReceived
    run = Written(store)
    run.says(MessageReceived(content="unwritable"))
    await run.journal.flush()
    run.ends()
    rejected = await run.journal.retry()

    assert str(rejected) == "no such record"
    assert run.types() == BEGUN
    assert [types for _, types in store.appends[2:]] == [[type] for type in (*BEGUN, "message_received")]


@pytest.mark.parametrize(("does", "error", "took"), [
    (StoreError("still full", kind="unwritable"), "still full", 0),
    ("is silent", "has not answered for 45 seconds", ANSWER_S),
])  # fmt: skip
async def test_a_retry_raises_the_error_of_a_failing_store(
    does: Exception | str, error: str, took: float, autojump_clock: object
) -> None:
    """An error that is not about an event is the store's own. A silent store has the usual timeout."""
    run = Written(ScriptedStore(FULL, does))
    await run.journal.flush()
    run.ends()
    began = trio.current_time()

    with pytest.raises(StoreError, match=error):
        await run.journal.retry()
    assert (trio.current_time() - began, run.journal.unsettled) == (took, True)


@pytest.mark.parametrize(("count", "size"), [(CAPACITY - 3, 1), (8, CAPACITY_BYTES // 8)])
async def test_a_provider_waits_while_too_much_is_unwritten(count: int, size: int) -> None:
    """At a number of events or of bytes, until they are stored. One less does not block."""
    run = Written(ScriptedStore())
    message = MessageReceived(content="x" * size)
    run.says(*[message] * (count - 1))
    await run.journal.wait_for_capacity()
    run.says(message)

    assert await waits_until_flushed(run, run.journal.wait_for_capacity) == (True, True)


async def test_a_waiting_caller_continues_when_writing_is_abandoned() -> None:
    """The error is then the journal's failure."""
    run = Written(ScriptedStore())
    run.journal.idle = False
    error = StoreError("given up")
    async with trio.open_nursery() as tasks:
        tasks.start_soon(run.journal.drained)
        await trio.testing.wait_all_tasks_blocked()
        run.journal.abandon(error)

    assert run.journal.failure is error


@pytest.mark.parametrize("more", [False, True])
async def test_events_stored_without_an_answer_are_not_stored_twice(more: bool, autojump_clock: object) -> None:
    """The retry finds them stored. If another process has ended the run since, its end is not overwritten."""
    store = ScriptedStore("stores and is silent")
    run = Written(store)
    with trio.move_on_after(1) as waiting:
        await run.journal.flush()
    assert (waiting.cancelled_caught, run.journal.unsettled) == (True, True)
    assert isinstance(run.journal.failure, StoreError)
    later = [RunFailed(run_id="r", session_id="s", error="its owner is gone")] if more else []
    await MemoryStore.append(store, later)
    await run.journal.settle()

    assert (len(store.appends), run.journal.unsettled, run.types()) == (2, False, BEGUN)
    assert [event.type async for event in store.read("s")] == [*BEGUN, *(event.type for event in later)]


async def test_drained_waits_for_events_that_nobody_writes_yet() -> None:
    """Although the writer is idle."""
    run = Written(ScriptedStore())

    assert await waits_until_flushed(run, run.journal.drained) == (True, True)


@pytest.mark.parametrize("with_end", [False, True])
async def test_a_store_that_answers_late_is_no_longer_failed(with_end: bool, autojump_clock: object) -> None:
    """Later events are written as usual. The run's own end is not taken for that of another process."""
    store = ScriptedStore("is slow")
    run = Written(store)
    if with_end:
        run.ends()
    async with trio.open_nursery() as tasks:
        tasks.start_soon(run.journal.flush)
        await trio.testing.wait_all_tasks_blocked()
        error = await run.journal.drained(2)
        later = await run.journal.drained(60)

    assert str(error) == "the store has not answered for 2 seconds"
    assert (later, run.journal.failure, run.journal.idle) == (None, None, True)


async def ends_it(store: MemoryStore) -> None:
    await MemoryStore.append(store, [RunFailed(run_id="r", session_id="s", error="its owner is gone")])


async def claims_it(store: MemoryStore) -> None:
    other = await store.register(Owner(owner_id="other"), lease_s=60)
    await store.claim_run("r", epoch=other.epoch, lost=True)


@pytest.mark.parametrize("does", [ends_it, claims_it])
@pytest.mark.parametrize("slept", [False, True], ids=["slow", "slept"])
async def test_a_late_answer_is_void_if_another_process_has_claimed_or_ended_the_run(
    does: Callable[[MemoryStore], Awaitable[None]], slept: bool, autojump_clock: object
) -> None:
    """No pending call is allowed, as the owner's lease may have ended unnoticed, also while its machine slept: the
    event loop's clock did not go on then.
    """
    store = ScriptedStore("stores and takes a moment" if slept else "stores and is slow")
    run = Written(store)
    async with trio.open_nursery() as tasks:
        tasks.start_soon(run.journal.flush)
        await trio.testing.wait_all_tasks_blocked()
        run.slept_ms = 3_600_000 if slept else 0
        await does(store)

    assert isinstance(run.journal.failure, StoreError)
    assert (run.journal.failure.kind, run.stored) == ("fenced", [])


@pytest.mark.parametrize(
    ("given", "placed"), [((), ()), ((3, 4), (6, 7)), ((5, 6), (6, 7)), ((6, 7), (6, 7)), ((9, 10), (9, 10))]
)
async def test_a_unit_follows_the_stored_events_at_its_own_position(
    given: tuple[int, ...], placed: tuple[int, ...]
) -> None:
    """The store recognises a unit by its seq, so one that was moved back could be taken for another."""
    journal = Written(ScriptedStore()).journal
    journal._last_seq = 5
    unit = journal._unit([MessageReceived(content="x", seq=seq) for seq in given])

    assert tuple(event.seq for event in unit) == placed


async def test_a_retry_waits_for_a_due_flush() -> None:
    """The task that flushes may run later."""
    run = Written(ScriptedStore())
    found: list[tuple[bool, list[str]]] = []

    async def attempt() -> None:
        found.append((await run.journal.retry() is None, run.types()))

    run.journal.idle = False
    async with trio.open_nursery() as tasks:
        tasks.start_soon(attempt)
        await trio.testing.wait_all_tasks_blocked()
        tasks.start_soon(run.journal.flush)

    assert found == [(True, BEGUN)]
    assert run.failures == []

"""The invariants of the event logs of some runs, whoever wrote them and whatever happened."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from proctor.adapters.stores import open_store
from proctor.policies.events import TERMINAL, Event, RunStarted, ToolCallStarted
from proctor.supervisor import RunInfo, Store, all_runs
from proctor.supervisor.ports.stored_types import NOT_OVER
from tests.stored_rows import stored_events


async def whole_record(store: Store) -> tuple[list[RunInfo], dict[str, list[Event]]]:
    """All runs, and the events of their sessions."""
    runs = [run async for run in all_runs(store)]
    return runs, {id: await stored_events(store, id) for id in sorted({run.session_id for run in runs})}


async def whole_record_at(name: str) -> tuple[list[RunInfo], dict[str, list[Event]]]:
    """The same for a store by its name."""
    async with open_store(name) as store:
        return await whole_record(store)


def wrong(
    runs: Iterable[RunInfo], sessions: dict[str, list[Event]], lines: Iterable[str] = (), *, unstarted: bool = False
) -> Iterator[str]:
    """The violated invariants of an event log.

    Args:
        runs: all of them.
        sessions: the events of each session.
        lines: the output of their processes: `ack SESSION SEQ RUN TYPE` for each acknowledged event,
            `ran RUN CALL` for each call that really ran.
        unstarted: whether runs may remain that nobody has started.
    """
    by_run: dict[str, list[Event]] = defaultdict(list)
    for session_id, events in sessions.items():
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield f"session {session_id} has a gap"
        for event in events:
            by_run[event.run_id].append(event)
    for run in runs:
        ends = [event.type for event in by_run[run.run_id] if isinstance(event, TERMINAL)]
        if unstarted and run.status == "created" and not by_run[run.run_id]:
            continue
        if run.status in NOT_OVER or len(ends) != 1 or not isinstance(by_run[run.run_id][-1], TERMINAL):
            last = by_run[run.run_id][-1].type if by_run[run.run_id] else "nothing"
            yield f"run {run.run_id} is {run.status}, has the ends {ends}, and its last event is {last}"
    calls = [e for events in by_run.values() for e in events if isinstance(e, ToolCallStarted)]
    begun = Counter(e.run_id for events in by_run.values() for e in events if isinstance(e, RunStarted))
    started = Counter(f"{event.run_id} {event.tool_call_id}" for event in calls)
    words = [line.split(" ", 1) for line in lines]
    ran = Counter(more[0] for word, *more in words if word == "ran")
    acknowledged = {rest for word, *more in words for rest in more if word == "ack"}
    for what, counted in (("runs began", begun), ("calls are recorded", started), ("calls ran", ran)):
        if twice := [each for each, times in counted.items() if times > 1]:
            yield f"{what} twice: {twice[:5]}"
    if unrecorded := set(ran) - set(started):
        yield f"calls ran unrecorded: {sorted(unrecorded)[:5]}"
    if lost := acknowledged - {place_of(event) for events in by_run.values() for event in events}:
        yield f"acknowledged events are lost: {sorted(lost)[:5]}"


def place_of(event: Event) -> str:
    """An event's position, as processes acknowledge it."""
    return f"{event.session_id} {event.seq} {event.run_id} {event.type}"

"""A session's record removed."""

from __future__ import annotations

from msgspec.structs import replace

from proctor.policies.stream.events import RecordPruned

from .batch import Batch
from .recording import Transaction

_RUNS = """SELECT run_id, violations, status IN ('created', 'running') FROM runs WHERE session_key = ?"""
_REMOVED = (
    "DELETE FROM approvals WHERE session_key = ?",
    "DELETE FROM runs WHERE session_key = ?",
)


def prune(recorder: Transaction, event: RecordPruned, up_to: int) -> RecordPruned | None:
    """See `Store.prune`."""
    recorder.hold([event.session_id], make=False)
    session = recorder.session(event.session_id)
    if session is None or session.last_seq != up_to:
        return None
    key, last_seq = session.key, session.last_seq
    runs = recorder.rows(_RUNS, (key,))
    if any(goes_on for *_, goes_on in runs):
        return None
    [(first_seq, events)] = recorder.rows("SELECT min(seq), count(*) FROM events WHERE session_key = ?", (key,))
    left = replace(
        event,
        first_seq=first_seq,
        last_seq=last_seq,
        events=events,
        runs=len(runs),
        violations=sum(violations for _, violations, _ in runs),
        head=session.head.hex(),
    )
    [stored] = recorder.append(Batch([left], {event.session_id: last_seq + 1}), look_up=False)
    recorder.write("DELETE FROM events WHERE session_key = ? AND seq <= ?", (key, last_seq), in_order=True)
    for sql in _REMOVED:
        recorder.write(sql, (key,), in_order=True, runs=[run_id for run_id, *_ in runs])
    recorder.write("DELETE FROM notes WHERE session_id = ?", (event.session_id,), in_order=True)
    assert isinstance(stored, RecordPruned)
    return stored

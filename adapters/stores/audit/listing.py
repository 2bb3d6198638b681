"""What a store's lists show, held to the record that they follow from: runs with their figures, and approvals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from proctor.policies.stream.codec import decode_event
from proctor.policies.stream.events import EVENT_TYPES, ApprovalEvent, Event, MessageSent, RunStarted
from proctor.supervisor.ports.facts import GOING_ON, ApprovalAnswer, RunInfo
from proctor.supervisor.redaction import Redactor
from proctor.supervisor.store.approvals import asks, state_after
from proctor.supervisor.store.codec import status_after
from proctor.supervisor.store.tally import COUNTED, RunTally

from .verifying import StoredRecord, Verifier

_TYPES = {
    name
    for name, kind in EVENT_TYPES.items()
    if kind in COUNTED or kind is MessageSent or issubclass(kind, ApprovalEvent)
}
_PLACEHOLDER = b"[redacted:"
_OURS = frozenset(("gate", "policy", "policies", "context", "portable_tools", "continuation"))
"""What a start adds to the metadata that the caller gave."""
_NOTHING_FITS = frozenset((b"",))
_CLOSE = 1e-9
_encode = msgspec.json.Encoder(order="deterministic").encode
_answer = msgspec.json.Decoder(ApprovalAnswer).decode


class ListedApproval(NamedTuple):
    """An approval as its row has it."""

    approval_id: str
    session_id: str
    state: str
    answer: bytes | None
    recorded: bool


class _Run:
    """A run as its record tells it; `ended` is its status then. `given` is what fits what it was started with, by
    name.
    """

    __slots__ = ("ended", "first_seq", "given", "session_id", "tally")

    def __init__(self, session_id: str, first_seq: int) -> None:
        self.session_id = session_id
        self.first_seq = first_seq
        self.tally = RunTally()
        self.ended = ""
        self.given: dict[str, frozenset[bytes]] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, MessageSent):
            self.given.setdefault("prompt", self._fitting(event, event.content))
            return
        if isinstance(event, RunStarted):
            self.given |= {name: self._fitting(event, value) for name, value in _metadata(event.metadata)}
        self.tally.take(event)
        status = status_after(event)
        if not self.ended and status not in GOING_ON:
            self.ended = status

    def _fitting(self, event: Event, value: Any) -> frozenset[bytes]:
        """Digests of what the list may have: this, or what an export makes of it. None where it may have more than
        the record: a secret that was taken out of that, or what was cut.
        """
        if event.omitted_chars or _PLACEHOLDER in _encode(value):
            return frozenset()
        return frozenset(_digest(one) for one in (value, _exporting().redact(value, self.session_id)))


class Lists:
    """What the lists must show, learnt from one record after another."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._approvals: dict[str, ApprovalEvent] = {}

    def take(self, record: StoredRecord) -> None:
        """The next record; one that is not read says nothing, and is found elsewhere."""
        if record.run_id and record.run_id not in self._runs:
            self._runs[record.run_id] = _Run(record.session_id, record.seq)
        if record.type not in _TYPES:
            return
        try:
            event = msgspec.structs.replace(decode_event(record.data), seq=record.seq)
        except Exception:
            return
        if isinstance(event, ApprovalEvent):
            if asks(event) or event.approval_id in self._approvals:
                self._approvals[event.approval_id] = event
        elif record.run_id:
            self._runs[record.run_id].take(event)

    def check(self, verifier: Verifier, runs: Iterable[RunInfo | str], approvals: Iterable[ListedApproval]) -> None:
        """Find what a list shows otherwise than the record, and what it does not show."""
        gone = {one.session_id for one in verifier.pruned}
        left = set(self._runs)
        for run in runs:
            if isinstance(run, str):
                left.discard(run)
                verifier.find("integrity", "list_changed", f"run `{run}` has a row that cannot be read")
                continue
            left.discard(run.run_id)
            if run.session_id in gone:
                continue
            try:
                self._check_run(verifier, run)
            except (TypeError, AttributeError):  # figures that are none
                verifier.find("integrity", "list_changed", f"run `{run.run_id}` has what cannot be read in its row")
        for run_id in sorted(left):
            place = {"session_id": self._runs[run_id].session_id, "seq": self._runs[run_id].first_seq}
            verifier.find("completeness", "not_listed", f"run `{run_id}` is in the record and in no list", **place)
        for approval in approvals:
            if approval.session_id not in gone:
                self._check_approval(verifier, approval)

    def _check_run(self, verifier: Verifier, run: RunInfo) -> None:
        read = self._runs.get(run.run_id) or _Run(run.session_id, 0)
        place = {"session_id": run.session_id, "seq": run.ended_seq}
        status = "running" if run.status == "lost" else run.status
        if not read.ended and status not in GOING_ON:
            message = f"run `{run.run_id}` has {run.status}, and its end is not there"
            verifier.find("completeness", "end_missing", message, **place)
            return
        recorded = read.tally.applied(RunInfo(run_id=run.run_id, session_id=read.session_id))
        differs = [] if read.session_id in verifier.lacking else list(_differences(run, recorded, read.given))
        if read.ended and read.ended != status:
            differs.insert(0, f"is listed as {run.status}; its record says {read.ended}")
        for message in differs:
            verifier.find("integrity", "list_changed", f"run `{run.run_id}` {message}", **place)

    def _check_approval(self, verifier: Verifier, approval: ListedApproval) -> None:
        event = self._approvals.get(approval.approval_id)
        place = {"session_id": approval.session_id, "seq": 0 if event is None else event.seq}
        state = "asked for nowhere" if event is None else state_after(event)
        listed: tuple[str, str | None] = approval.state, _by(approval.answer)
        if state == "requested":  # nobody has acted on it yet, or its run is over
            fits = not approval.recorded or approval.state == "withdrawn"
        else:
            fits = event is not None and listed == (state, event.by)
        if not fits:
            message = f"approval `{approval.approval_id}` is listed as {approval.state}; its record says {state}"
            verifier.find("integrity", "list_changed", message, **place)


def _differences(run: RunInfo, recorded: RunInfo, given: Mapping[str, frozenset[bytes]]) -> Iterator[str]:
    """What a run's row shows otherwise than its record."""
    if run.session_id != recorded.session_id:
        yield f"is listed in session `{run.session_id}`; its record is in `{recorded.session_id}`"
    for name in ("calls", "violations", "started_seq", "ended_seq", "started_at", "ended_at"):
        listed, own = getattr(run, name), getattr(recorded, name)
        if listed != own:
            yield f"has {name} `{listed}` in the list; its record says `{own}`"
    for name in ("tenant", "labels"):
        listed, own = getattr(run, name), getattr(recorded, name)
        if recorded.started_seq and listed != own:
            yield f"has the {name} `{listed}` in the list; its record says `{own}`"
    for name in recorded.usage.__struct_fields__:
        listed, own = getattr(run.usage, name), getattr(recorded.usage, name)
        if abs(listed - own) > _CLOSE * max(1.0, abs(own)):
            yield f"has used `{listed}` of {name} in the list; its record says `{own}`"

    if recorded.started_seq and not run.spec.get("asks"):
        yield from _given_otherwise(run.spec, given)


def _given_otherwise(spec: dict[str, Any], given: Mapping[str, frozenset[bytes]]) -> Iterator[str]:
    """What a run that started was created with, otherwise than its record has it."""
    listed = dict(_metadata(spec.get("metadata", {})))
    if "prompt" in given:
        listed["prompt"] = spec.get("prompt", "")
    for name in sorted(listed.keys() | given.keys()):
        fitting = given.get(name, _NOTHING_FITS)
        if fitting and (name not in listed or _digest(listed[name]) not in fitting):
            yield f"has another {name} in the list than in its record"


def _metadata(metadata: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the caller gave, by name."""
    return ((f"metadata `{name}`", value) for name, value in metadata.items() if name not in _OURS)


@cache
def _exporting() -> Redactor:
    return Redactor()


def _digest(value: Any) -> bytes:
    return sha256(_encode(value)).digest()


def _by(answer: Any) -> str | None:
    try:
        return None if answer is None else _answer(answer).by
    except msgspec.MsgspecError:
        return ""

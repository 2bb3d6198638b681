"""Compares the lists of runs, approvals and sessions with the records."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import msgspec

from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.events.run_context import FIGURES
from proctor.policies.monitor.usage import TokenMeter
from proctor.policies.values.amounts import figure
from proctor.policies.values.json_values import NOT_JSON
from proctor.supervisor.errors import StoreError
from proctor.supervisor.machine.interface import ADDED_METADATA
from proctor.supervisor.ports.stored_types import GOING_ON, AnswerGiven, ApprovalAnswer, RunInfo, StoredApproval
from proctor.supervisor.redaction import PLACEHOLDER, Redactor
from proctor.supervisor.store import records
from proctor.supervisor.store.invariants import asks
from proctor.supervisor.store.memory_tables import ApprovalTable

from ..tables.seals import run_digest, run_mark
from .verify import StoredRecord, Verifier

_TYPES = {
    name
    for name, kind in ev.EVENT_TYPES.items()
    if kind in records.COUNTED
    or kind in records.CALLS
    or kind is ev.MessageSent
    or issubclass(kind, (ev.ApprovalEvent, ev.SessionEvent))
}
_ENDS = {name for name, kind in ev.EVENT_TYPES.items() if kind in ev.TERMINAL}
_ANSWERS = {name for name, kind in ev.EVENT_TYPES.items() if kind in records.AFTER_THE_END}
_NOTHING_FITS = frozenset((b"",))
_CLOSE = 1e-9
_encode = msgspec.json.Encoder(order="deterministic").encode
_encode_labels = msgspec.json.Encoder().encode
_answer = msgspec.json.Decoder(ApprovalAnswer).decode
_spec = msgspec.json.Decoder(dict[str, Any]).decode


class _Provided(msgspec.Struct):
    provider: str = ""


_provided = msgspec.json.Decoder(_Provided).decode
ListedRun: TypeAlias = dict[str, Any]
"""A run's row by column, and its `session_id`."""


class ListedApproval(NamedTuple):
    """An approval as its row has it."""

    approval_id: str
    session_id: str
    seq: int
    run_id: str
    state: str
    held: int
    ran: int
    answer: bytes | None
    answered_at: str | None
    recorded: int


class _Run:
    """A run by its records. `given` has the digests that fit its start, by name. `flaws` are impossible records, each
    with its code and seq.
    """

    __slots__ = (
        "_calls",
        "_late",
        "_meter",
        "delta",
        "first_seq",
        "flaws",
        "given",
        "provider",
        "session_id",
        "status",
    )

    def __init__(self, session_id: str, first_seq: int, meter: TokenMeter) -> None:
        self.session_id = session_id
        self._meter = meter
        meter.new_run("")
        self.first_seq = first_seq
        self.delta = records.RunDelta()
        self.status = "running" if first_seq else "created"
        self.provider = ""
        self.given: dict[str, frozenset[bytes]] = {}
        self.flaws: list[tuple[str, int, str]] = []
        self._calls = records.CallsInFlight()
        self._late = False

    def note_late(self, record: StoredRecord) -> None:
        """Note each end, and the first record after an end."""
        if record.type in _ENDS:
            self.flaws.append(("ended_twice", record.seq, f"ends again, after it has {self.status}"))
        elif not self._late:
            self._late = True
            self.flaws.append(("after_the_end", record.seq, "has records after its end"))

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.status not in GOING_ON

    def apply(self, event: ev.Event) -> None:
        if type(event) in records.CALLS:
            try:
                self._calls.observe(event)
            except StoreError:
                self.flaws.append(("started_twice", event.seq, f"starts call `{_call(event)}` again while it runs"))
        if isinstance(event, ev.MessageSent):
            self.given.setdefault("prompt", self._fitting(event, event.content))
            return
        if isinstance(event, ev.RunStarted):
            self.given |= {name: self._fitting(event, value) for name, value in _metadata(event.metadata)}
        self.delta.count(event)
        status = records.status_after(event)
        if not self.ended and status not in GOING_ON:
            self.status = status
            self._check_usage(event)
        elif isinstance(event, ev.TokenUsageUpdated) and not self.ended:
            with suppress(EventError):
                self._meter.add(event, None)

    def _check_usage(self, end: ev.Event) -> None:
        """Note each figure of the end that is not the reports' sum; a cost may be higher, by prices."""
        for name, stated in zip(FIGURES, self.delta.settled, strict=True):
            counted = getattr(self._meter.run, name)
            close = _CLOSE * max(1.0, counted)
            if stated is None:
                continue
            if counted - stated > close or (stated - counted > close and name != "cost_usd"):
                message = f"ends with `{figure(stated)}` of {name}; what was reported adds up to `{figure(counted)}`"
                self.flaws.append(("adds_up", end.seq, message))
            if name == "cost_usd":
                self._meter.reported.cost_usd += max(0.0, stated - counted)

    def row(self, created: RunInfo) -> ListedRun:
        """The run's row by its records, if it was created so."""
        run = self.delta.applied(created)
        return {
            "status": self.status,
            "provider": created.provider or self.provider,
            "tenant": run.tenant,
            "labels": _encode_labels(run.labels) if run.labels else None,
            "started_seq": run.started_seq or None,
            "started_ms": _ms(run.started_at),
            "ended_seq": run.ended_seq or None,
            "ended_ms": _ms(run.ended_at),
            **{name: getattr(run, name) for name in records.COUNTERS.values()},
            "calls_in_flight": self._calls.text,
            **msgspec.structs.asdict(run.usage),
        }

    def _fitting(self, event: ev.Event, value: Any) -> frozenset[bytes]:
        """The digests that the list may have: of the value, or of its export. None if the list may have more than the
        record, as that was redacted or cut.
        """
        if event.omitted_chars or PLACEHOLDER in _encode(value):
            return frozenset()
        return frozenset(_digest(one) for one in (value, _exporting().redact(value, self.session_id)))


class Lists:
    """Computes the expected rows of the lists from the records and from the decisions on approvals."""

    def __init__(self, answers: Mapping[str, AnswerGiven]) -> None:
        self._runs: dict[str, _Run] = {}
        self._meters: dict[str, TokenMeter] = {}
        self._answers = answers
        self._approvals = ApprovalTable()
        self._requests: dict[str, ev.ToolApprovalRequested] = {}
        self._agents: dict[str, str] = {}
        self._providers: dict[str, str] = {}
        self._marks = self._marks_left = 0

    def apply(self, record: StoredRecord) -> None:
        """Add the next record; an unreadable one is skipped, as it is a finding elsewhere."""
        if record.run_id and record.run_id not in self._runs:
            meter = self._meters.setdefault(record.session_id, TokenMeter())
            self._runs[record.run_id] = _Run(record.session_id, record.seq, meter)
        run = self._runs.get(record.run_id)
        if record.session_id not in self._providers or (run is not None and not (run.provider or run.ended)):
            self._learn_provider(record, run)
        if run is not None and run.ended and record.type not in _ANSWERS:
            run.note_late(record)
        if record.type not in _TYPES:
            return
        try:
            event = msgspec.structs.replace(ev.decode_event(record.data), seq=record.seq)
        except Exception:
            return
        if isinstance(event, ev.SessionEvent) and event.provider_session_id:
            self._agents[event.session_id] = event.provider_session_id
        if isinstance(event, ev.ApprovalEvent):
            self._note_approval(event)
        elif record.run_id:
            if isinstance(event, ev.TERMINAL):
                self._approvals.note(event)
            self._runs[record.run_id].apply(event)

    def _learn_provider(self, record: StoredRecord, run: _Run | None) -> None:
        with suppress(*NOT_JSON):
            if provider := _provided(record.data).provider:
                self._providers.setdefault(record.session_id, provider)
                if run is not None and not (run.provider or run.ended):
                    run.provider = provider

    def _note_approval(self, event: ev.ApprovalEvent) -> None:
        """Update an approval by its event and by the decision on it."""
        is_new = event.approval_id not in self._requests
        self._approvals.note(event)
        if asks(event) and is_new:
            self._requests[event.approval_id] = event
            given = self._answers.get(event.approval_id)
            if given is not None and given.at is not None:
                with suppress(StoreError):
                    self._approvals.answer(event.approval_id, given.answer, given.at, instruct=True)

    def check(self, verifier: Verifier, runs: Iterable[ListedRun], approvals: Iterable[ListedApproval]) -> None:
        """Find rows that differ from the records, and rows that are missing."""
        for run_id, read in self._runs.items():
            for code, seq, message in read.flaws if read.session_id not in verifier.lacking else ():
                verifier.find("integrity", code, f"run `{run_id}` {message}", read.session_id, seq)
        self._check_runs(verifier, runs)
        self._check_approvals(verifier, approvals)

    def _check_runs(self, verifier: Verifier, runs: Iterable[ListedRun]) -> None:
        gone = {one.session_id for one in verifier.pruned}
        left = set(self._runs)
        for run in runs:
            self._marks ^= run_mark(run["run_id"])
            left.discard(run["run_id"])
            self._check_run(verifier, run, gone)
        for run_id in sorted(left):
            self._marks_left ^= run_mark(run_id)
            place = self._runs[run_id].session_id, self._runs[run_id].first_seq
            verifier.find("completeness", "not_listed", f"run `{run_id}` is in the record and in no list", *place)

    def _check_approvals(self, verifier: Verifier, approvals: Iterable[ListedApproval]) -> None:
        missing = {id for id, event in self._requests.items() if event.session_id not in verifier.lacking}
        for approval in approvals:
            missing.discard(approval.approval_id)
            self._check_approval(verifier, approval)
        for approval_id in sorted(missing):
            place = self._requests[approval_id].session_id, self._requests[approval_id].seq
            message = f"approval `{approval_id}` is in the record and in no list"
            verifier.find("integrity", "list_changed", message, *place)

    def check_marks(self, verifier: Verifier, marked: int | None) -> None:
        """Find runs without records that were removed from the list or added by hand."""
        if marked not in (self._marks, self._marks ^ self._marks_left):
            message = "a run is missing from the list, or was added to it by hand"
            verifier.find("completeness", "not_listed", message)

    def check_sessions(self, verifier: Verifier, sessions: Iterable[tuple[str, str, str | None]]) -> None:
        """Find sessions whose provider or agent session id differs from the records."""
        gone = {one.session_id for one in verifier.pruned} | verifier.lacking
        for session_id, provider, listed in sessions:
            pairs = {
                "agent's own id of the session": (listed, self._agents.get(session_id)),
                "session's provider": (provider, self._providers.get(session_id, "")),
            }
            for name, (shown, own) in pairs.items() if session_id not in gone else ():
                if shown != own:
                    message = f"the {name} is `{shown}` in the list; its record says `{own}`"
                    verifier.find("integrity", "list_changed", message, session_id)

    def _check_run(self, verifier: Verifier, run: ListedRun, gone: set[str]) -> None:
        read = self._runs.get(run["run_id"]) or _Run(run["session_id"], 0, TokenMeter())
        seq = run["ended_seq"]
        place = run["session_id"], seq if isinstance(seq, int) else 0
        if not read.ended and run["status"] in records.ENDINGS.values() and read.session_id not in gone:
            message = f"run `{run['run_id']}` has {run['status']}, and its end is not there"
            verifier.find("completeness", "end_missing", message, *place)
            return
        created = _created(run)
        differences: Iterable[str] = ()
        if created is None:
            differences = ["was created otherwise, or is another owner's, than the list has it"]
        elif read.session_id not in gone | verifier.lacking:
            differences = _differences(run, read, created)
        for message in differences:
            verifier.find("integrity", "list_changed", f"run `{run['run_id']}` {message}", *place)

    def _check_approval(self, verifier: Verifier, approval: ListedApproval) -> None:
        stored, event = self._approvals.stored.get(approval.approval_id), self._requests.get(approval.approval_id)
        place = approval.session_id, 0 if event is None else event.seq
        name = f"approval `{approval.approval_id}`"
        if stored is None or event is None:
            message = f"{name} is listed as {approval.state}; its record says asked for nowhere"
            verifier.find("integrity", "list_changed", message, *place)
            return
        given = (event.session_id, event.seq, event.run_id, event.held, event.ran)
        listed = (approval.session_id, approval.seq, approval.run_id, approval.held, approval.ran)
        if listed != given:
            verifier.find("integrity", "list_changed", f"{name} is listed for another request than its own", *place)
        if approval.state != stored.state:
            message = f"{name} is listed as {approval.state}; its record says {stored.state}"
            verifier.find("integrity", "list_changed", message, *place)
        elif not _has_decision(approval, stored):
            message = f"{name} was answered otherwise than it is listed: by whom, what, or when"
            verifier.find("integrity", "list_changed", message, *place)


def _has_decision(approval: ListedApproval, stored: StoredApproval) -> bool:
    """Whether a row has the decision that the record gives."""
    try:
        answer = None if approval.answer is None else _answer(approval.answer)
        at = None if approval.answered_at is None else datetime.fromisoformat(approval.answered_at)
    except (*NOT_JSON, TypeError, ValueError):
        return False
    return (answer, at, approval.recorded) == (stored.answer, stored.answered_at, stored.recorded)


def _created(run: ListedRun) -> RunInfo | None:
    """A run as it was created, by its row; None if that does not match its seal."""
    names = ("created_at", "created_ms", "spec", "after")
    ids, whose = (run["run_id"], run["session_id"]), (run["epoch"], run["attempts"])
    for provider in dict.fromkeys((run["provider"], "")):  # one that was created for none has that of its events
        row = (run["number"], provider, *(run[name] for name in names))
        if fits(run["seal"], partial(run_digest, *ids, row, *whose)):
            with suppress(*NOT_JSON, TypeError):
                spec = _spec(run["spec"])
                tenant, labels = records.owners(spec)
                return RunInfo(
                    run_id=ids[0], session_id=ids[1], provider=provider, spec=spec, tenant=tenant, labels=labels
                )
    return None


def _differences(run: ListedRun, read: _Run, created: RunInfo) -> Iterator[str]:
    """The differences between a run's row and its record."""
    if run["session_id"] != read.session_id:
        yield f"is listed in session `{run['session_id']}`; its record is in `{read.session_id}`"
    for name, own in read.row(created).items():
        listed = run[name]
        if name == "labels" and isinstance(listed, str):
            listed = listed.encode()
        if listed != own and not (name in FIGURES and _close(listed, own)):
            yield f"has {name} `{listed}` in the list; its record says `{own}`"
    if read.delta.started and not created.spec.get("asks"):
        yield from _spec_differences(created.spec, read.given)


def _close(listed: Any, own: float) -> bool:
    """Whether two sums are equal, whatever the order of their addition."""
    return isinstance(listed, int | float) and abs(listed - own) <= _CLOSE * max(1.0, abs(own))


def fits(digest: Any, made: Callable[[], bytes]) -> bool:
    """Whether a digest is an expected one."""
    try:
        return bool(bytes(digest) == made())
    except (TypeError, ValueError, msgspec.MsgspecError):
        return False


def _spec_differences(spec: dict[str, Any], given: Mapping[str, frozenset[bytes]]) -> Iterator[str]:
    """The differences between a started run's stored spec and its record."""
    listed = dict(_metadata(spec.get("metadata", {})))
    if "prompt" in given:
        listed["prompt"] = spec.get("prompt", "")
    for name in sorted(listed.keys() | given.keys()):
        fitting = given.get(name, _NOTHING_FITS)
        if fitting and (name not in listed or _digest(listed[name]) not in fitting):
            yield f"has another {name} in the list than in its record"


def _metadata(metadata: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The caller's metadata, by name."""
    return ((f"metadata `{name}`", value) for name, value in metadata.items() if name not in ADDED_METADATA)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else ev.at_ms(at)


def _call(event: ev.Event) -> str:
    return str(getattr(event, "tool_call_id", ""))


@cache
def _exporting() -> Redactor:
    return Redactor()


def _digest(value: Any) -> bytes:
    return sha256(_encode(value)).digest()

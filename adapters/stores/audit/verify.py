"""Records checked one after another: is each what was written, and is each that was written there?"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from proctor.policies.events import EVENT_TYPES, TERMINAL, ApprovalEvent, MessageSent, RunStarted, SessionEvent, at_ms
from proctor.policies.events.codec import decode_event
from proctor.supervisor.errors import StoreError
from proctor.supervisor.ports.stored_types import (
    GOING_ON,
    AnswerGiven,
    ApprovalAnswer,
    Block,
    Instruction,
    Lift,
    RunInfo,
)
from proctor.supervisor.redaction import Redactor
from proctor.supervisor.store import codec
from proctor.supervisor.store.admission import AFTER_THE_END, CALLS, CallsInFlight
from proctor.supervisor.store.codec import status_after
from proctor.supervisor.store.invariants import asks
from proctor.supervisor.store.memory_tables import Desk
from proctor.supervisor.store.run_index import COUNTED, RunTally

from .heads import Head, OrdersHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from proctor.policies.events import Event, ToolApprovalRequested
    from proctor.supervisor.ports.stored_types import StoredApproval

    from .heads import Heads


MOST_FINDINGS = 1000
"""So many are told; the others are counted."""


class StoredRecord(NamedTuple):
    """A record as it is stored, and what its row says of it."""

    position: int
    session_id: str
    seq: int
    run_id: str
    event_id: str | None
    type: str
    at: int | None
    data: bytes
    digest: bytes


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it was written (`integrity`) or not there any more (`completeness`)."""

    about: Literal["integrity", "completeness"]
    code: str
    message: str
    session_id: str = ""
    seq: int = 0


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """A session of which somebody removed the record, and said so in it."""

    session_id: str
    records: int
    at: datetime | None = None


class _Known(msgspec.Struct):
    type: str
    session_id: str = ""
    run_id: str = ""
    event_id: str = ""
    seq: int = 0
    at: datetime | None = None
    events: int = 0
    head: str = ""


class _Session:
    __slots__ = ("digest", "seq")

    def __init__(self, session_id: str) -> None:
        self.digest = codec.root(session_id)
        self.seq = 0


_decode = msgspec.json.Decoder(_Known).decode


class Verifier:
    """Takes the records of a store in the order in which they were stored; `anchor` are heads that were kept."""

    def __init__(self, anchor: Heads | None = None) -> None:
        self.records = 0
        self.last_position = 0
        self.findings: list[AuditFinding] = []
        self.more = 0
        self.pruned: list[Pruned] = []
        self.lacking: set[str] = set()
        self._sessions: dict[str, _Session] = {}
        self._anchor = anchor
        self._anchored = {head.session_id: head for head in anchor.sessions} if anchor else {}

    def heads(self) -> Iterator[Head]:
        """Where each session ends, in the order of their ids."""
        for session_id, session in sorted(self._sessions.items()):
            yield Head(session_id=session_id, seq=session.seq, digest=session.digest.hex())

    def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest record, 0 when it has none."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.seq

    def find(self, about: Literal["integrity", "completeness"], code: str, message: str, **place: object) -> None:
        """Note something that is not as it should be."""
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(
                msgspec.convert({"about": about, "code": code, "message": message, **place}, AuditFinding)
            )
        else:
            self.more += 1

    def take(self, record: StoredRecord) -> None:
        """The next record."""
        self.records += 1
        self.last_position = record.position
        session = self._sessions.get(record.session_id)
        if session is None:
            session = self._sessions[record.session_id] = _Session(record.session_id)
        own = self._read(record)
        self._follow(session, record, own)
        session.seq, session.digest = record.seq, bytes(record.digest)
        self._hold_to_anchor(record)

    def finish(self) -> None:
        """All were taken: what of the anchor was not met?"""
        for head in self._anchored.values():
            seq = self.last_seq(head.session_id)
            place = {"session_id": head.session_id, "seq": head.seq}
            if seq == 0:
                self.find(
                    "completeness", "session_missing", "the session is gone; it was there when anchored", **place
                )
            elif seq < head.seq:
                self.find(
                    "completeness",
                    "cut_off",
                    f"the record ends at {seq}; it went to {head.seq} when anchored",
                    **place,
                )

    def _read(self, record: StoredRecord) -> _Known | None:
        """What the record says it is, where that is what its row says."""
        place = {"session_id": record.session_id, "seq": record.seq}
        try:
            written = _decode(record.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.find("integrity", "unreadable", "the record is not an event", **place)
            return None
        pairs = {
            "session": (written.session_id, record.session_id),
            "seq": (written.seq, record.seq),
            "run": (written.run_id, record.run_id),
            "type": (written.type, record.type),
            "event_id": (written.event_id, record.event_id or ""),
            "time": (written.at and at_ms(written.at), record.at),
        }
        for name, (own, row) in pairs.items():
            if own != row:
                self.find("integrity", "moved", f"the record's own {name} is `{own}`, its row says `{row}`", **place)
        return written

    def _follow(self, session: _Session, record: StoredRecord, written: _Known | None) -> None:
        """Check that the record follows the one before."""
        place = {"session_id": record.session_id, "seq": record.seq}
        before = session.digest
        if record.seq <= session.seq:
            self.find("integrity", "out_of_order", f"the record stands behind record {session.seq}", **place)
            return
        if record.seq > session.seq + 1:
            if session.seq or written is None or written.type != "record_pruned":
                first = session.seq + 1
                gap = f"record {first} is" if first == record.seq - 1 else f"records {first} to {record.seq - 1} are"
                self.find("completeness", "missing", f"{gap} missing before this one", **place)
                self.lacking.add(record.session_id)
                return
            self.pruned.append(Pruned(session_id=record.session_id, records=written.events, at=written.at))
            before = _from_hex(written.head)
            kept = self._anchored.get(record.session_id)
            if kept is not None and kept.seq == record.seq - 1 and kept.digest != written.head:
                self.find("integrity", "pruned_otherwise", "what was pruned is not what was anchored", **place)
        if codec.link(before, record.data) != record.digest:
            self.find(
                "integrity", "changed", "this record, or the digest before it, is not what was written", **place
            )

    def _hold_to_anchor(self, record: StoredRecord) -> None:
        head = self._anchored.get(record.session_id)
        if head is not None and head.seq == record.seq and head.digest != bytes(record.digest).hex():
            place = {"session_id": record.session_id, "seq": record.seq}
            self.find("integrity", "rewritten", "the record up to here is not the one that was anchored", **place)


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


_TYPES = {
    name
    for name, kind in EVENT_TYPES.items()
    if kind in COUNTED or kind in CALLS or kind is MessageSent or issubclass(kind, (ApprovalEvent, SessionEvent))
}


_ENDS = {name for name, kind in EVENT_TYPES.items() if kind in TERMINAL}


_ANSWERS = {name for name, kind in EVENT_TYPES.items() if kind in AFTER_THE_END}


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
    seq: int
    run_id: str
    state: str
    held: int
    ran: int
    answer: bytes | None
    answered_at: str | None
    recorded: int


class _Run:
    """A run as its record tells it; `ended` is its status then. `given` is what fits what it was started with, by
    name. `flaws` are what no run does, each with its code and the seq of its record.
    """

    __slots__ = ("_calls", "_late", "ended", "first_seq", "flaws", "given", "provider", "session_id", "tally")

    def __init__(self, session_id: str, first_seq: int) -> None:
        self.session_id = session_id
        self.first_seq = first_seq
        self.tally = RunTally()
        self.ended = ""
        self.provider = ""
        self.given: dict[str, frozenset[bytes]] = {}
        self.flaws: list[tuple[str, int, str]] = []
        self._calls = CallsInFlight()
        self._late = False

    def note_late(self, record: StoredRecord) -> None:
        """Note what comes after the end; the first of it, and each end."""
        if record.type in _ENDS:
            self.flaws.append(("ended_twice", record.seq, f"ends again, after it has {self.ended}"))
        elif not self._late:
            self._late = True
            self.flaws.append(("after_the_end", record.seq, "has records after its end"))

    def take(self, event: Event) -> None:
        if type(event) in CALLS:
            try:
                self._calls.observe(event)
            except StoreError:
                self.flaws.append(("started_twice", event.seq, f"starts call `{_call(event)}` again while it runs"))
        if isinstance(event, MessageSent):
            self.given.setdefault("prompt", self._fitting(event, event.content))
            return
        if isinstance(event, RunStarted):
            self.provider = self.provider or event.provider
            self.given |= {name: self._fitting(event, value) for name, value in _metadata(event.metadata)}
        self.tally.take(event)
        status = status_after(event)
        if not self.ended and status not in GOING_ON:
            self.ended = status
            for name, stated, counted in self.tally.off():
                message = f"ends with `{stated:g}` of {name}; what was reported adds up to `{counted:g}`"
                self.flaws.append(("adds_up", event.seq, message))

    def _fitting(self, event: Event, value: Any) -> frozenset[bytes]:
        """Digests of what the list may have: this, or what an export makes of it. None where it may have more than
        the record: a secret that was taken out of that, or what was cut.
        """
        if event.omitted_chars or _PLACEHOLDER in _encode(value):
            return frozenset()
        return frozenset(_digest(one) for one in (value, _exporting().redact(value, self.session_id)))


class Lists:
    """What the lists must show, learnt from one record after another, and from the answers that approvals took."""

    def __init__(self, answers: Mapping[str, AnswerGiven]) -> None:
        self._runs: dict[str, _Run] = {}
        self._answers = answers
        self._desk = Desk()
        self._requests: dict[str, ToolApprovalRequested] = {}
        self._agents: dict[str, str] = {}

    def take(self, record: StoredRecord) -> None:
        """The next record; one that is not read says nothing, and is found elsewhere."""
        if record.run_id and record.run_id not in self._runs:
            self._runs[record.run_id] = _Run(record.session_id, record.seq)
        run = self._runs.get(record.run_id)
        if run is not None and run.ended and record.type not in _ANSWERS:
            run.note_late(record)
        if record.type not in _TYPES:
            return
        try:
            event = msgspec.structs.replace(decode_event(record.data), seq=record.seq)
        except Exception:
            return
        if isinstance(event, SessionEvent) and event.provider_session_id:
            self._agents[event.session_id] = event.provider_session_id
        if isinstance(event, ApprovalEvent):
            self._asks(event)
        elif record.run_id:
            if isinstance(event, TERMINAL):
                self._desk.note(event)
            self._runs[record.run_id].take(event)

    def _asks(self, event: ApprovalEvent) -> None:
        """Let an approval follow from its events and the answer it took."""
        new = asks(event) and event.approval_id not in self._requests
        self._desk.note(event)
        if asks(event) and new:
            self._requests[event.approval_id] = event
            order = self._answers.get(event.approval_id)
            if order is not None and order.at is not None:
                with suppress(StoreError):
                    self._desk.answer(event.approval_id, order.answer, order.at, instruct=True)

    def check(self, verifier: Verifier, runs: Iterable[RunInfo | str], approvals: Iterable[ListedApproval]) -> None:
        """Find what a list shows otherwise than the record, and what it does not show."""
        gone = {one.session_id for one in verifier.pruned}
        for run_id, read in self._runs.items():
            for code, seq, message in read.flaws if read.session_id not in verifier.lacking else ():
                verifier.find("integrity", code, f"run `{run_id}` {message}", session_id=read.session_id, seq=seq)
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
        missing = {id for id, event in self._requests.items() if event.session_id not in gone | verifier.lacking}
        for approval in approvals:
            missing.discard(approval.approval_id)
            if approval.session_id not in gone:
                self._check_approval(verifier, approval)
        for approval_id in sorted(missing):
            place = {"session_id": self._requests[approval_id].session_id, "seq": self._requests[approval_id].seq}
            message = f"approval `{approval_id}` is in the record and in no list"
            verifier.find("integrity", "list_changed", message, **place)

    def check_sessions(self, verifier: Verifier, sessions: Iterable[tuple[str, str | None]]) -> None:
        """Find what the list of sessions has as the agent's own id otherwise than the record."""
        gone = {one.session_id for one in verifier.pruned} | verifier.lacking
        for session_id, listed in sessions:
            own = self._agents.get(session_id)
            if listed != own and session_id not in gone:
                message = f"the agent's own id of the session is `{listed}` in the list; its record says `{own}`"
                verifier.find("integrity", "list_changed", message, session_id=session_id, seq=0)

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
        if read.provider and run.provider != read.provider:
            differs.append(f"has the provider `{run.provider}` in the list; its record says `{read.provider}`")
        if read.ended and read.ended != status:
            differs.insert(0, f"is listed as {run.status}; its record says {read.ended}")
        for message in differs:
            verifier.find("integrity", "list_changed", f"run `{run.run_id}` {message}", **place)

    def _check_approval(self, verifier: Verifier, approval: ListedApproval) -> None:
        stored, event = self._desk.approval(approval.approval_id), self._requests.get(approval.approval_id)
        place = {"session_id": approval.session_id, "seq": 0 if event is None else event.seq}
        name = f"approval `{approval.approval_id}`"
        if stored is None or event is None:
            message = f"{name} is listed as {approval.state}; its record says asked for nowhere"
            verifier.find("integrity", "list_changed", message, **place)
            return
        given = (event.session_id, event.seq, event.run_id, event.held, event.ran)
        listed = (approval.session_id, approval.seq, approval.run_id, bool(approval.held), bool(approval.ran))
        if listed != given:
            verifier.find("integrity", "list_changed", f"{name} is listed for another request than its own", **place)
        if approval.state != stored.state:
            message = f"{name} is listed as {approval.state}; its record says {stored.state}"
            verifier.find("integrity", "list_changed", message, **place)
        elif not _answered_so(approval, stored):
            message = f"{name} was answered otherwise than it is listed: by whom, what, or when"
            verifier.find("integrity", "list_changed", message, **place)


def _answered_so(approval: ListedApproval, stored: StoredApproval) -> bool:
    """Whether a row has the answer that follows from the record. One that an older version migrated lacks the moment
    at which it was withdrawn.
    """
    try:
        answer = None if approval.answer is None else _answer(approval.answer)
        at = None if approval.answered_at is None else datetime.fromisoformat(approval.answered_at)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return False
    if approval.state == "withdrawn" and at is None:
        return answer == stored.answer
    return (answer, at, bool(approval.recorded)) == (stored.answer, stored.answered_at, stored.recorded)


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


def _call(event: Event) -> str:
    return str(getattr(event, "tool_call_id", ""))


@cache
def _exporting() -> Redactor:
    return Redactor()


def _digest(value: Any) -> bytes:
    return sha256(_encode(value)).digest()


_ROOT = sha256(b"proctor orders").digest()


_NUMBER_BYTES = 8


_orders_decode = msgspec.json.Decoder(Instruction).decode


def answers_in(orders: Iterable[tuple[int, bytes]]) -> dict[str, AnswerGiven]:
    """The answers that approvals took as orders, by approval."""
    found: dict[str, AnswerGiven] = {}
    for _number, data in orders:
        try:
            order = _orders_decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(order, AnswerGiven):
            found.setdefault(order.approval_id, order)
    return found


class Orders:
    """Takes the orders of a store in their order; `anchor` is where they ended when heads were kept.

    A store keeps no digests of them: who changes one can be found by an anchor only.
    """

    def __init__(self, verifier: Verifier, anchor: OrdersHead | msgspec.UnsetType = msgspec.UNSET) -> None:
        self._verifier = verifier
        self._anchor = OrdersHead(number=0, digest="") if anchor is msgspec.UNSET else anchor
        self._digest = _ROOT
        self._last = 0
        self._blocks: dict[int, Block] = {}

    @property
    def head(self) -> OrdersHead:
        """Where they end now."""
        return OrdersHead(number=self._last, digest=self._digest.hex())

    def check(self, orders: Iterable[tuple[int, bytes]], given: int, blocks: Iterable[int]) -> None:
        """Find what is not there or not as it was: `given` is how many numbers were, `blocks` what the store keeps
        starts blocked by.
        """
        for number, data in orders:
            self._take(number, bytes(data))
        self._missing(self._last + 1, max(given, self._anchor.number))
        for number in sorted(self._blocks.keys() ^ set(blocks)):
            what = (
                "was not lifted, and blocks" if number in self._blocks else "blocks starts in the list, and no order"
            )
            how = "nothing in the list" if number in self._blocks else "says so"
            self._verifier.find("integrity", "list_changed", f"order {number} {what} {how}")

    def _take(self, number: int, data: bytes) -> None:
        self._missing(self._last + 1, number - 1)
        self._last = number
        self._digest = codec.link(self._digest, number.to_bytes(_NUMBER_BYTES, "big") + data)
        if number == self._anchor.number and self._digest.hex() != self._anchor.digest:
            message = f"the orders up to {number} are not those that were anchored"
            self._verifier.find("integrity", "orders_rewritten", message)
        try:
            order = _orders_decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._verifier.find("integrity", "order_changed", f"order {number} cannot be read")
            return
        if isinstance(order, Block):
            self._blocks[number] = order
        elif isinstance(order, Lift):
            self._blocks = {at: block for at, block in self._blocks.items() if not order.lifts(block)}

    def _missing(self, first: int, last: int) -> None:
        if first <= last:
            which = f"order {first} is" if first == last else f"orders {first} to {last} are"
            self._verifier.find("completeness", "order_missing", f"{which} missing")

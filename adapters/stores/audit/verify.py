"""Verifies records one by one: each is as written, and none is missing."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from proctor.policies.events import at_ms
from proctor.policies.values.json_values import NOT_JSON, json_words
from proctor.supervisor.errors import NotInstalledError, UsageError
from proctor.supervisor.ports.stored_types import AnswerGiven, Block, Command, UnblockStarts
from proctor.supervisor.store.records import link, root

MOST_FINDINGS = 1000
"""How many findings are listed; the rest are counted."""


class StoredRecord(NamedTuple):
    """A record as stored, with the columns of its row."""

    position: int
    session_id: str
    seq: int
    run_id: str
    event_id: str | None
    type: str
    at: int | None
    data: bytes
    digest: bytes


About: TypeAlias = Literal["integrity", "completeness"]


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was changed (`integrity`) or is missing (`completeness`)."""

    about: About
    code: str
    message: str
    session_id: str = ""
    seq: int = 0


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """A session whose record was pruned, by the event in its place."""

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
        self.digest = root(session_id)
        self.seq = 0


_decode = msgspec.json.Decoder(_Known).decode


class Verifier:
    """Verifies the records of a store in the order they were stored; `anchor` is an earlier checkpoint."""

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
        """The last record of each session, by session id."""
        for session_id, session in sorted(self._sessions.items()):
            yield Head(session_id=session_id, seq=session.seq, digest=session.digest.hex())

    def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest record, 0 when it has none."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.seq

    def find(self, about: About, code: str, message: str, session_id: str = "", seq: int = 0) -> None:
        """Add a finding, about a record or a session if one is given."""
        if len(self.findings) < MOST_FINDINGS:
            found = AuditFinding(about=about, code=code, message=message, session_id=session_id, seq=seq)
            self.findings.append(found)
        else:
            self.more += 1

    def apply(self, record: StoredRecord) -> None:
        """Verify a record."""
        self.records += 1
        if record.position <= self.last_position:
            place = record.session_id, record.seq
            self.find("integrity", "uncounted", f"a record has number {record.position}; the first is 1", *place)
        self.last_position = record.position
        session = self._sessions.get(record.session_id)
        if session is None:
            session = self._sessions[record.session_id] = _Session(record.session_id)
        own = self._read(record)
        self._follow(session, record, own)
        session.seq, session.digest = record.seq, bytes(record.digest)
        self._check_anchor(record)

    def finish(self) -> None:
        """Find what the anchor lists and no record has."""
        for head in self._anchored.values():
            seq = self.last_seq(head.session_id)
            place = head.session_id, head.seq
            if seq == 0:
                self.find("completeness", "session_missing", "the session is missing; the checkpoint has it", *place)
            elif seq < head.seq:
                self.find(
                    "completeness",
                    "cut_off",
                    f"the record ends at {seq}; it went to {head.seq} when anchored",
                    *place,
                )

    def _read(self, record: StoredRecord) -> _Known | None:
        """The record's values, if its row has the same."""
        place = record.session_id, record.seq
        try:
            written = _decode(record.data)
        except NOT_JSON:
            self.find("integrity", "unreadable", "the record is not an event", *place)
            return None
        pairs = {
            "session": (written.session_id, record.session_id),
            "seq": (written.seq, record.seq),
            "run": (written.run_id, record.run_id),
            "type": (written.type, record.type),
            "event_id": (written.event_id or None, record.event_id),
            "time": (written.at and at_ms(written.at), record.at),
        }
        for name, (own, row) in pairs.items():
            if own != row:
                self.find("integrity", "moved", f"the record's own {name} is `{own}`, its row says `{row}`", *place)
        return written

    def _follow(self, session: _Session, record: StoredRecord, written: _Known | None) -> None:
        """Check that a record follows the last one."""
        place = record.session_id, record.seq
        before = session.digest
        if record.seq <= session.seq:
            self.find("integrity", "out_of_order", f"the record stands behind record {session.seq}", *place)
            return
        if record.seq > session.seq + 1:
            if session.seq or written is None or written.type != "record_pruned":
                first = session.seq + 1
                gap = f"record {first} is" if first == record.seq - 1 else f"records {first} to {record.seq - 1} are"
                self.find("completeness", "missing", f"{gap} missing before this one", *place)
                self.lacking.add(record.session_id)
                return
            self.pruned.append(Pruned(session_id=record.session_id, records=written.events, at=written.at))
            before = _from_hex(written.head)
            kept = self._anchored.get(record.session_id)
            if kept is not None and kept.seq == record.seq - 1 and kept.digest != written.head:
                self.find("integrity", "pruned_otherwise", "what was pruned differs from the checkpoint", *place)
        if link(before, record.data) != record.digest:
            self.find("integrity", "changed", "this record, or the digest before it, was changed", *place)

    def _check_anchor(self, record: StoredRecord) -> None:
        head = self._anchored.get(record.session_id)
        if head is not None and head.seq == record.seq and head.digest != bytes(record.digest).hex():
            place = record.session_id, record.seq
            self.find("integrity", "rewritten", "the event log up to here differs from the checkpoint", *place)


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


_ROOT = sha256(b"proctor orders").digest()
_NUMBER_BYTES = 8
_command = msgspec.json.Decoder(Command).decode


def answers_in(commands: Iterable[tuple[int, bytes]]) -> dict[str, AnswerGiven]:
    """The decisions that came as commands, by approval."""
    found: dict[str, AnswerGiven] = {}
    for _number, data in commands:
        try:
            command = _command(data)
        except NOT_JSON:
            continue
        if isinstance(command, AnswerGiven):
            found.setdefault(command.approval_id, command)
    return found


class CommandVerifier:
    """Verifies the commands of a store in order; `anchor` is an earlier checkpoint."""

    def __init__(self, verifier: Verifier, anchor: Heads | None) -> None:
        self._verifier = verifier
        kept = msgspec.UNSET if anchor is None else anchor.orders
        self._anchor = CommandsHead(number=0, digest="") if kept is msgspec.UNSET else kept
        self._digest = _ROOT
        self._last = 0
        self._blocks: dict[int, Block] = {}

    @property
    def head(self) -> CommandsHead:
        """The commands' head."""
        return CommandsHead(number=self._last, digest=self._digest.hex())

    def check(self, commands: Iterable[tuple[int, bytes]], blocks: Iterable[tuple[int, str, str]]) -> None:
        """Find missing and changed commands; `blocks` are the store's current blocks on starts, with their scopes."""
        for number, data in commands:
            self._apply(number, bytes(data))
        self._missing(self._last + 1, self._anchor.number)
        listed = {number: starts for number, *starts in blocks}
        for number in sorted(self._blocks.keys() ^ listed.keys()):
            what = "was not lifted, and is missing from" if number in self._blocks else "was added by hand to"
            self._verifier.find("integrity", "list_changed", f"freeze {number} {what} the list")

        for number in sorted(self._blocks.keys() & listed.keys()):
            block, starts = self._blocks[number], listed[number]
            if starts != [block.scope, block.value]:
                message = f"freeze {number} has another scope than in the list"
                self._verifier.find("integrity", "list_changed", message)

    def _apply(self, number: int, data: bytes) -> None:
        self._missing(self._last + 1, number - 1)
        self._last = number
        self._digest = link(self._digest, number.to_bytes(_NUMBER_BYTES, "big", signed=number < 0) + data)
        if number == self._anchor.number and self._digest.hex() != self._anchor.digest:
            message = f"the commands up to {number} differ from the checkpoint"
            self._verifier.find("integrity", "orders_rewritten", message)
        try:
            command = _command(data)
        except NOT_JSON:
            self._verifier.find("integrity", "order_changed", f"command {number} cannot be read")
            return
        if isinstance(command, Block):
            self._blocks[number] = command
        elif isinstance(command, UnblockStarts):
            self._blocks = {at: block for at, block in self._blocks.items() if not command.lifts(block)}

    def _missing(self, first: int, last: int) -> None:
        if first <= last:
            which = f"command {first} is" if first == last else f"commands {first} to {last} are"
            self._verifier.find("completeness", "order_missing", f"{which} missing")


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last record of a session and its digest, in hex."""

    session_id: str
    seq: int
    digest: str


class CommandsHead(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the last command, and the digest over all commands up to it, in hex."""

    number: int
    digest: str


class Heads(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="proctor_heads"):
    """All sessions of a store at one moment.

    Attributes:
        store_id: the store's id.
        records: how many records were stored up to then.
        made_at: when, UTC.
        sessions: the last record of each, by session id.
        orders: the end of people's commands and answers; early checkpoints lack it.
        signature: Ed25519 over everything else, in hex; empty if unsigned.
    """

    store_id: str
    records: int
    made_at: str
    sessions: tuple[Head, ...]
    orders: CommandsHead | msgspec.UnsetType = msgspec.UNSET
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """The bytes that a signature covers."""
        return encode(msgspec.structs.replace(self, signature=""))


encode = msgspec.json.Encoder(order="deterministic").encode


def read_heads(path: Path) -> Heads:
    """Read a checkpoint. Raises UsageError for a file that has none."""
    try:
        return msgspec.json.decode(path.read_bytes().removeprefix(BOM_UTF8), type=Heads)
    except NOT_JSON as error:
        raise UsageError(f"`{path}` is not a checkpoint of `proctor audit head`: {json_words(error)}") from None


def signed(heads: Heads, key_file: Path) -> Heads:
    """The checkpoint, signed. Raises UsageError for a file without an Ed25519 private key, and without the extra."""
    _check_installed()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _loaded(lambda pem: load_pem_private_key(pem, None), key_file, Ed25519PrivateKey, "private")
    return msgspec.structs.replace(heads, signature=key.sign(heads.signed_bytes()).hex())


def check_signature(heads: Heads, key_file: Path) -> None:
    """Raises UsageError unless the checkpoint was signed with the private half of this key, and without the extra."""
    _check_installed()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _loaded(load_pem_public_key, key_file, Ed25519PublicKey, "public")
    try:
        key.verify(bytes.fromhex(heads.signature), heads.signed_bytes())
    except (InvalidSignature, ValueError):
        raise UsageError(f"the checkpoint is not signed with the key of `{key_file}`; do not trust it") from None


def _check_installed() -> None:
    if find_spec("cryptography") is None:
        raise NotInstalledError("signatures need `cryptography`", "audit")


_OPENSSL = {"private": "genpkey -algorithm ed25519", "public": "pkey -in key.pem -pubout"}


def _loaded(load: Any, key_file: Path, kind: type, half: str) -> Any:
    try:
        key = load(key_file.read_bytes())
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, kind):
        raise UsageError(f"`{key_file}` has no Ed25519 {half} key in PEM form; `openssl {_OPENSSL[half]}` makes one")
    return key

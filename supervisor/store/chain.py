"""What ties the records of a session together: the digest of each is over the one before and its own bytes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256

from proctor.policies.stream.events import Event, RecordPruned

SIZE = 32
"""Bytes of a digest."""


def root(session_id: str) -> bytes:
    """What stands before a session's first record."""
    return sha256(b"proctor record\0" + session_id.encode("utf-8", "surrogatepass")).digest()


def head_below(event: Event, before: bytes) -> bytes:
    """What stands before a session's first record, `before`, unless that tells what was pruned below it elsewhere."""
    if isinstance(event, RecordPruned) and event.seq > 1:
        with suppress(ValueError):
            return bytes.fromhex(event.head) or before
    return before


def link(before: bytes, record: bytes) -> bytes:
    """The digest of a record: it stands for the session up to there, byte for byte."""
    return sha256(before + record).digest()


def links(before: bytes, records: Iterable[bytes]) -> list[bytes]:
    """The digests of records that follow one another."""
    made: list[bytes] = []
    for record in records:
        before = sha256(before + record).digest()
        made.append(before)
    return made

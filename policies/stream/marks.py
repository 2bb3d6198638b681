"""Marks: a few bytes by which a call that is over is known again."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from .calls import UNREADABLE, check_input, exact, fingerprint

MARK_LENGTH = 256
"""Up to how many bytes a tool and its input stand in a mark as they are; beyond, as a digest."""


def mark(name: str, input: Any) -> bytes:
    """What is kept of a call whose input was checked. Raises one of UNREADABLE."""
    text = fingerprint((name, input))
    if len(text) <= MARK_LENGTH:
        return text
    written = exact(input)
    return _short(text if written is input else fingerprint((name, written)))


def is_mark_of(mark_: bytes, name: str, input: Any) -> bool:
    """Whether a mark is that of this tool with this input: the order of keys aside, and 7.0 is 7.

    Raises one of UNREADABLE.
    """
    check_input(input)
    other = mark(name, input)
    return mark_ == other or _exact(mark_) == _exact(other)


def same_input(one: Any, other: Any) -> bool:
    """Whether two inputs are the same: the order of keys aside, 7.0 is 7, and true is not 1."""
    if one is other:
        return True
    try:
        return bool(one == other) and fingerprint(exact(one)) == fingerprint(exact(other))
    except UNREADABLE:
        return False


def _exact(text: bytes) -> bytes:
    """The same bytes for marks of the same call."""
    if not text.startswith(b"["):
        return text  # a digest, or not the mark of a call
    return _short(fingerprint(exact(msgspec.json.decode(text))))


def _short(text: bytes) -> bytes:
    return text if len(text) <= MARK_LENGTH else hashlib.blake2b(text, digest_size=16).hexdigest().encode()

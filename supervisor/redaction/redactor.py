"""Values with their secrets replaced."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar

import msgspec

from proctor.policies.stream.codec import Encoded
from proctor.policies.stream.events import Event

from .config import Redaction
from .detector import Detector
from .patterns import names_secret

T = TypeVar("T")

EXACT = frozenset(
    (
        "approval_id",
        "created_at",
        "event_id",
        "id",
        "input_digest",
        "kind",
        "parent_tool_call_id",
        "provider",
        "provider_session_id",
        "run_id",
        "session_id",
        "tool_call_id",
    )
)
"""Fields of records by which something is found again; they are left as they are."""

_NAMES = ("name", "key", "header", "Name", "Key")
_VALUES = ("value", "Value", "val")
"""Objects that give something as a name and a value."""
_encode = msgspec.json.Encoder(enc_hook=str).encode
_UNREADABLE = (TypeError, ValueError, OverflowError, RecursionError)


class Redactor:
    """Replaces secrets by `[redacted:KIND:DIGEST]`, equal for equal secrets of one session and for no others."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        redaction = Redaction.of_environment() if redaction is None else redaction
        self._detector = None if redaction.off else Detector(redaction)
        self._key = redaction.key

    def events(self, events: list[Event], lines: list[bytes]) -> list[Event]:
        """Events as they may be stored; `lines` are theirs, fewer where one cannot be encoded. Almost none has a
        secret, and many at once cost little to look at.
        """
        if len(lines) < len(events):
            return [self.redact(event, event.session_id) for event in events]
        if self._detector is None or not self._detector.suspects(b"\n".join(lines)):
            return Encoded(events, lines)
        return [self.redact(event, event.session_id) if self._suspects(event) else event for event in events]

    def redact(self, value: T, session_id: str = "") -> T:
        """A text, a JSON value or a record as it may be kept and shown; the same object where it has no secret."""
        if self._detector is None or not self._suspects(value):
            return value
        redacted: T = _Walk(self._detector, self._placeholder_of(session_id)).of(value)
        return redacted

    def _suspects(self, value: Any) -> bool:
        if self._detector is None:
            return False
        try:
            return self._detector.suspects(_encode(value))
        except _UNREADABLE:  # no store takes it either, but what is shown of it is searched
            return True

    def _placeholder_of(self, session_id: str) -> Callable[[str, bytes], bytes]:
        key = f"{self._key}\0{session_id}".encode("utf-8", "replace")

        def placeholder(kind: str, secret: bytes) -> bytes:
            return f"[redacted:{kind}:{hmac.digest(key, secret, 'sha256').hex()[:16]}]".encode()

        return placeholder


class _Walk:
    """Goes through one value; what has no secret in it is given as it is."""

    def __init__(self, detector: Detector, placeholder: Callable[[str, bytes], bytes]) -> None:
        self._detector = detector
        self._placeholder = placeholder

    def of(self, value: Any, depth: int = 0, *, named: bool = False) -> Any:
        """A value without its secrets; one that is `named` as a secret is one as a whole."""
        if isinstance(value, str):
            return self._whole(value) if named and self._detector.may_be_named(value) else self._text(value)
        if depth > _DEEPEST or value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, dict):
            pair = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), "")
            is_named = bool(pair) and names_secret(pair)
            walked = {
                self.of(key, depth + 1): self.of(
                    item,
                    depth + 1,
                    named=named or (isinstance(key, str) and (names_secret(key) or (is_named and key in _VALUES))),
                )
                for key, item in value.items()
            }
            same = all(map(is_, value, walked)) and all(map(is_, value.values(), walked.values()))
            return value if same else walked
        if isinstance(value, (list, tuple)):
            before = [isinstance(item, str) and names_secret(item) for item in (None, *value)]
            items = [self.of(item, depth + 1, named=named or at) for item, at in zip(value, before, strict=False)]
            return value if all(map(is_, value, items)) else type(value)(items)
        return self._struct(value, depth) if isinstance(value, msgspec.Struct) else value

    def _struct(self, value: msgspec.Struct, depth: int) -> msgspec.Struct:
        changed: dict[str, Any] = {}
        for name in value.__struct_fields__:
            if name not in EXACT:
                before = getattr(value, name)
                after = self.of(before, depth + 1)
                if after is not before:
                    changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value

    def _whole(self, text: str) -> str:
        return self._placeholder("named-secret", text.encode("utf-8", "surrogatepass")).decode()

    def _text(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")  # places in text are slow to find again, those in bytes are not
        parts: list[bytes] = []
        place = 0
        for start, end, kind in self._detector.find(data):
            parts += (data[place:start], self._placeholder(kind, data[start:end]))
            place = end
        return b"".join((*parts, data[place:])).decode("utf-8", "surrogatepass") if parts else text


UNREDACTED = Redactor(Redaction(off=True))
"""Leaves everything as it is."""
_DEEPEST = 400
"""No store takes a value that is nested deeper."""

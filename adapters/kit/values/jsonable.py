"""Values of a program as records hold them."""

from __future__ import annotations

import math
from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """The value as JSON would have it; what has no such form becomes text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_as_data))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def is_finite(value: Any) -> bool:
    """Whether every number in a value is one that JSON can say; records hold `null` for any other."""
    try:
        return _all_finite(msgspec.to_builtins(value, enc_hook=_as_data))
    except (TypeError, ValueError, RecursionError):
        return False


def _all_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(_all_finite(item) for item in value.values())
    return not isinstance(value, list | tuple | set | frozenset) or all(map(_all_finite, value))


def _as_data(value: Any) -> Any:
    """Pydantic's models by their own account, anything else as text."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)

"""Values of a program as records hold them."""

from __future__ import annotations

from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """The value as JSON would have it; what has no such form becomes text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_known))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _known(value: Any) -> Any:
    """Pydantic's models by their own account, anything else as text."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)

"""Secrets are taken out of what is recorded, logged and shown; what is judged stays exact."""

from __future__ import annotations

from .config import Redaction
from .redactor import UNREDACTED, Redactor

__all__ = ["UNREDACTED", "Redaction", "Redactor"]

ROOMS = (
    "redactor",  # values with their secrets replaced
    "detector",  # where in a text the secrets are
    "patterns",  # what secrets look like
    "config",  # what the caller wants redacted
)

"""One line of JSON a session."""

from __future__ import annotations

import msgspec

from ..results import SessionReport

_encoder = msgspec.json.Encoder()


def json_line(report: SessionReport) -> str:
    """The report as one line of JSON, without the line's end."""
    return _encoder.encode(report).decode()

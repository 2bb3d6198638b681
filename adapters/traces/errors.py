"""What can go wrong while reading recorded sessions.

ProctorError
└── TraceError                  bad_trace          a recorded session that cannot be read; .place
"""

from __future__ import annotations

from typing import ClassVar

from proctor.policies.errors import ProctorError

__all__ = ["TraceError"]


class TraceError(ProctorError, ValueError):
    """A recorded session that cannot be read; `place` is `file:line`, or `file` where no line is meant."""

    code: ClassVar[str] = "bad_trace"

    def __init__(self, message: str, *, place: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place

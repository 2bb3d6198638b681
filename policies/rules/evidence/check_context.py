"""What a `check` is told beside the call."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ...stream.calls import RunContext, Usage
from ..refusal import CheckAnswer as CheckAnswer
from ..refusal import Refuse as Refuse


class PastCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One earlier call of the session and what became of it; `output` is what it returned, as JSON.

    Attributes:
        id: The call's id.
        name: Its tool.
        input: Its arguments.
        turn: The number of the model response that asked for it, from 1.
        status: What became of it.
        output: What it returned, where it completed.
    """

    id: str
    name: str
    input: dict[str, Any]
    turn: int
    status: Literal["running", "completed", "failed", "denied"] = "running"
    output: Any = None


class CheckContext(msgspec.Struct, frozen=True, kw_only=True):
    """The session as it stands when a call is judged.

    Attributes:
        calls: The session's calls so far, oldest first, the judged one not among them.
        usage: What the run has used: tokens and USD.
        run: Who runs what.
        turn: The number of the model response that asks, from 1, counted through the session.
    """

    calls: tuple[PastCall, ...]
    usage: Usage
    run: RunContext
    turn: int

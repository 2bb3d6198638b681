"""The error of a refused call, below ProctorError.

ProctorError
└── ToolRefused   tool_refused   the call did not run; .call, .tell_model
"""

from __future__ import annotations

from typing import ClassVar

from proctor.policies.errors import ProctorError
from proctor.policies.stream.calls import ToolCall


class ToolRefused(ProctorError):  # noqa: N818 - what happened, not a fault
    """The policy refused a call: it did not run. `tell_model` is the result to give to the model."""

    code: ClassVar[str] = "tool_refused"

    def __init__(self, call: ToolCall, tell_model: str) -> None:
        super().__init__(tell_model)
        self.call = call
        self.tell_model = tell_model

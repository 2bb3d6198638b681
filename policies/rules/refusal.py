"""How a function of the user's answers about a call: a `check`, or a net's validator."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec

from .machine import Finding
from .rule import RuleAction


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal with more to say than no.

    Raises:
        ValueError: no such action.

    Attributes:
        action: Stands in place of the rule's; None is the rule's.
        reason: For telemetry; None is the rule's.
        tell_model: The text for the model; None is the rule's.
    """

    action: RuleAction | None = None
    reason: str | None = None
    tell_model: str | None = None

    def __post_init__(self) -> None:
        if self.action is not None and self.action not in get_args(RuleAction):
            raise ValueError(f"`{self.action}` is not an action: {', '.join(get_args(RuleAction))}")


CheckAnswer: TypeAlias = bool | str | Refuse | None
"""None or True: the call may run. False, a text that says why, or `Refuse`: it may not."""


def refusal(answer: Any, *, expected: str, otherwise: str, details: dict[str, Any] | None = None) -> Finding | None:
    """The finding that an answer means for a call; None if the call may run.

    Args:
        answer: what the function returned.
        expected: what should have been, in words.
        otherwise: what happened, where the answer does not say why.
        details: figures of the finding.
    """
    if answer is None or answer is True:
        return None
    if isinstance(answer, Refuse):
        action = "cancel" if answer.action == "halt" else answer.action
        given = {"action": action, "reason": answer.reason, "tell_model": answer.tell_model}
        return Finding(expected, answer.reason or otherwise, details or {}, **given)  # type: ignore[arg-type]
    return Finding(expected, answer if isinstance(answer, str) else otherwise, details or {})

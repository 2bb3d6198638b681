"""The agent's question before it acts: the call it is about, and the option that is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .calls import KINDS, AcpCall, given, tool_input, tool_name

CANCELLED: Final[dict[str, Any]] = {"outcome": {"outcome": "cancelled"}}
"""The answer when the prompt is being cancelled; it permits nothing."""


def option(options: Any, kind: str) -> dict[str, Any] | None:
    """The answer that picks the option of that kind, or None if the agent does not offer it."""
    for offered in options if isinstance(options, list) else ():
        if isinstance(offered, dict) and offered.get("kind") == kind and "optionId" in offered:
            return {"outcome": {"outcome": "selected", "optionId": offered["optionId"]}}
    return None


def permission(options: Any) -> dict[str, Any] | None:
    """The answer that permits this one call; an option that permits more is never picked."""
    return option(options, "allow_once")


def refusal(options: Any) -> dict[str, Any]:
    """The answer that refuses this one call."""
    return option(options, "reject_once") or CANCELLED


def proposal(call: AcpCall, fields: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """The id, name and input to put to the gate.

    The input is what the agent announced, with what the question says over it. A second question about one
    call for something else, or one about a call that runs already, is a call of its own.

    Args:
        call: the call, with what the agent said of it before.
        fields: the question's own description of the call.
    """
    kind = fields.get("kind") if fields.get("kind") in KINDS else call.fields.get("kind")
    merged = {**call.fields, **given(fields), "kind": kind}
    raw = [part.get("rawInput") for part in (call.fields, fields)]
    if all(isinstance(part, dict) for part in raw):
        merged["rawInput"] = {**raw[0], **raw[1]}  # type: ignore[dict-item]
    name, tool_input_ = tool_name(merged, call.first_title), tool_input(merged)
    for call_id, proposed in call.proposals.items():
        if proposed == (name, tool_input_):
            return call_id, name, tool_input_
    asked_before = len(call.proposals) + call.reported
    return (f"{call.id}:{asked_before + 1}" if asked_before else call.id), name, tool_input_

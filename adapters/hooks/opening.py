"""When the client need not ask its person about a call: the policy allows it positively, and asking has no other use.

Some prompts of the client are no question whether a call may run, and some calls change what the client itself goes
by. Those are left to it, whatever the policy says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from proctor.policies import Decision, ToolCall
from proctor.policies.monitor.monitor import ListAdmission
from proctor.policies.values.json_values import texts_in

from .judge import Unmatched

_FOR_THE_PERSON = ("AskUserQuestion", "EnterPlanMode", "ExitPlanMode")
"""Tools whose prompt is what they are for."""
_OUTSIDE = ("dangerouslyDisableSandbox",)
"""Inputs by which a call leaves the client's own sandbox."""
_ITS_OWN = (".claude", ".mcp.json", "managed-settings", ".git/hooks", ".git/config")
"""Places from which the client, or a tool of every developer, takes what it runs."""
_READING = ("Read", "Glob", "Grep")


class LastAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A hook's last answer about a call, kept beside the session's record.

    `because` has a line for each rule that decided, or says why the client was left to ask.
    """

    at: str
    run_id: str
    tool_name: str
    tool_call_id: str
    tool_input: Any
    answer: str
    because: tuple[str, ...]


class Opening:
    """The answer for allowed calls.

    Args:
        unmatched: what becomes of a call that the policy says nothing about.
        kept: the paths of the policies and the store.
    """

    def __init__(self, unmatched: Unmatched, kept: Sequence[str]) -> None:
        self._unmatched = unmatched
        self._kept = tuple(kept)

    def of(self, call: ToolCall, decision: Decision, admission: ListAdmission, mode: str) -> tuple[bool, str]:
        """Whether a call that may run is opened, and why, or why it is left to the client.

        Args:
            call: the call.
            decision: what was decided on it.
            admission: whether allow lists admit it.
            mode: the client's permission mode.
        """
        if (why := self._left(call, decision, mode)) or (admission.unread and (why := admission.why_not)):
            return False, why
        if admission.rules:
            rules = ", ".join(f"policy `{policy}`, rule `{rule}`" for policy, rule in admission.rules)
            return True, f"allowed by {rules}"
        if self._unmatched == "allow":
            return True, "no rule objects, and what is not matched is allowed"
        return False, admission.why_not

    def _left(self, call: ToolCall, decision: Decision, mode: str) -> str:
        if decision.action != "allow":
            return "a rule warns of it"
        if mode == "plan":
            return "the client is planning"
        if call.name in _FOR_THE_PERSON:
            return "it is a question to the person"
        if any(call.input.get(name) for name in _OUTSIDE):
            return "it leaves the client's sandbox"
        if call.name not in _READING:
            texts = [text.casefold() for text in texts_in(call.input)]
            for place in (*_ITS_OWN, *self._kept):
                if any(place.casefold() in text for text in texts):
                    return f"it names `{place}`, by which calls are judged or started"
        return ""

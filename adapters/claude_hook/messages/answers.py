"""The answers to the client, in its own format. No answer at all leaves the client to its own permissions."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Verdict = Literal["allow", "ask", "deny"]


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one hook.

    `allow` with a reason asks nobody, and never opens what the client's own rules keep shut; without one the client
    decides as if there were no hook. `reason` is public: of `deny` the model reads it, of the others the person.
    `stop` ends the response; `notes` are for the person only.
    """

    verdict: Verdict = "allow"
    reason: str = ""
    stop: bool = False
    notes: tuple[str, ...] = ()


STOPPED = "A policy ended this response."


def output_of(answer: HookAnswer, hook: str) -> dict[str, Any]:
    """The hook's output; empty when there is nothing to say."""
    output: dict[str, Any] = {}
    if answer.notes:
        output["systemMessage"] = "\n".join(answer.notes)
    if answer.stop:
        output |= {"continue": False, "stopReason": STOPPED}
    if (answer.verdict != "allow" or answer.reason) and hook == "PreToolUse":
        output["hookSpecificOutput"] = {
            "hookEventName": hook,
            "permissionDecision": answer.verdict,
            "permissionDecisionReason": answer.reason,
        }
    elif answer.verdict == "deny" and hook in ("UserPromptSubmit", "ConfigChange"):
        output |= {"decision": "block", "reason": answer.reason}
    return output

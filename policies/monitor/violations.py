"""Turns the finding of a rule or a limit into a violation, with its enforcement."""

import json
from typing import Any

from ..errors import Action, Enforcement, Violation
from ..events.calls import ALLOWING, ID_NOT_OVER, ToolCall
from ..limits import LIMITS, Budget, Limit
from ..rules import RULES
from ..rules.machine import Finding
from ..stack.merge import BudgetEntry, LimitEntry
from ..values.foreign_code import error_text
from .call_table import CallState, Session
from .program import CompiledRule

REFUSES_LATER = frozenset({*LIMITS, "budget", *(kind for kind, rule in RULES.items() if rule.refuses_later)})
"""Kinds whose violation refuses every later call: with a gate, a deny needs no cancel."""


def of_rule(stack: str, rule: CompiledRule, finding: Finding, call: CallState | None, session: Session) -> Violation:
    """The violation for a rule's finding, about a call or not."""
    action = finding.action or rule.action
    return Violation(
        policy=rule.policy,
        stack=stack,
        rule=rule.id,
        kind=rule.kind,
        action=action,
        enforcement=_enforcement(action, call, rule.unpreventable),
        message=_message(
            finding, rule.description, session.count + 1 if call and rule.machine.evaluates_order else 0
        ),
        details=_details(finding, rule.description, call, session),
        cause=finding.cause,
        reason=finding.reason or rule.reason,
        tell_model=finding.tell_model or rule.tell_model,
        unpreventable=rule.unpreventable,
        tool_call_id=call.id if call else None,
        tool_name=call.name if call else None,
    )


def of_limit(
    stack: str, entry: LimitEntry | BudgetEntry, finding: Finding, call: CallState | None, session: Session
) -> Violation:
    """The violation of a limit, or of an exhausted budget; the finding's own action wins."""
    action = finding.action or entry.action
    written: Limit | Budget
    if isinstance(entry, LimitEntry):
        written, rule, kind = entry.limit, entry.name, entry.name
    else:
        written, rule, kind = entry.budget, entry.budget.name, "budget"
    return Violation(
        policy=entry.policy,
        stack=stack,
        rule=rule,
        kind=kind,
        action=action,
        enforcement=_enforcement(action, call),
        message=_message(finding, written.description),
        details=_details(finding, written.description, call, session),
        cause="budget",
        reason=written.reason,
        tell_model=written.tell_model,
        tool_call_id=call.id if call else None,
        tool_name=call.name if call else None,
    )


def raised(rule: CompiledRule, error: Exception) -> Finding:
    """The finding for a rule that raised: it denies, whatever its action."""
    return Finding(
        expected="a rule that can be evaluated",
        actual=f"it raised {type(error).__name__}: {error_text(error)[:200]}",
        action="cancel" if rule.action == "cancel" else "deny",
    )


def _message(finding: Finding, description: str | None, position: int = 0) -> str:
    """The text for a person: the call's position in an order, the values that decided, and the rule's description."""
    conditions = finding.details.get("conditions", ())
    deciding = [each for each in conditions if not each["holds"]] or conditions
    notes = [f"call {position}"] if position else []
    notes += dict.fromkeys(filter(None, (_condition(each, finding.actual) for each in deciding)))
    noted = f" ({'; '.join(notes)})" if notes else ""
    return f"{finding.actual}{noted}" + (f": {description.strip()}" if description and description.strip() else "")


def _condition(explained: dict[str, Any], text: str) -> str:
    """A condition, unless the text has it already, with the value it was compared to."""
    words = [] if explained["condition"] in text else [str(explained["condition"])]
    if "value" in explained:
        value = explained["value"]
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        words.append("got no value" if value == [] else f"got `{shown}`")
    return ", ".join(words)


def _details(finding: Finding, description: str | None, call: CallState | None, session: Session) -> dict[str, Any]:
    """Expected and actual, and the session's progress: its turn, and the calls before."""
    words = {
        "expected": finding.expected,
        "actual": finding.actual,
        "suggestion": finding.suggestion,
        "description": description,
    }
    stated = {name: text for name, text in words.items() if text}
    turn = session.turn if call is None else call.turn
    return {**stated, "turn": turn, "sequence_length": session.count, **finding.details}


def _enforcement(action: Action, call: CallState | None, unpreventable: str | None = None) -> Enforcement:
    """The enforcement of an action: a call that was proposed and denied never ran."""
    if action in ALLOWING:
        return "observed"
    if call is not None and not call.observed:
        return "prevented"
    stops = action == "cancel" or (action == "deny" and unpreventable != "warn")
    return "interrupted" if stops else "observed"


def id_in_use(stack: str, call: ToolCall, current: CallState) -> Violation:
    """The violation of a call whose id is that of `current`, which is not over: another call, or this very one."""
    running = current.is_again(call.name, call.input)
    actual = "the call of this id is running" if running else "the id is that of another call, which is not over"
    details = {"expected": f"one call under the id `{call.id}`", "actual": actual, "tool_call_id": call.id}
    return _of_monitor(stack, call, "tool_call_id", details, tell_model=ID_NOT_OVER.format(call.name))


def unreadable(stack: str, call: ToolCall, error: Exception, enforcement: Enforcement = "prevented") -> Violation:
    """The violation of a call whose input cannot be read."""
    deep = isinstance(error, RecursionError)
    actual = "a value in a circle, or nested too deep" if deep else f"{type(error).__name__}: {str(error)[:200]}"
    details = {"expected": "an input that can be read", "actual": actual}
    return _of_monitor(stack, call, "input", details, cause="input", enforcement=enforcement)


def _of_monitor(stack: str, call: ToolCall, kind: str, details: dict[str, Any], **more: Any) -> Violation:
    about = {"enforcement": "prevented", "tool_call_id": str(call.id), "tool_name": str(call.name), **more}
    return Violation(
        policy=stack,
        stack=stack,
        rule=kind,
        kind=kind,
        action="deny",
        message=details["actual"],
        details=details,
        **about,
    )

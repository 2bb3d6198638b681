"""Turns the finding of a rule or a limit into a violation, with its enforcement."""

import json
from typing import Any

from ..errors import Action, Enforcement, Violation
from ..events.calls import ALLOWING, ID_NOT_OVER, ToolCall
from ..limits import LIMITS, Budget, Limit
from ..rules import RULES
from ..rules.machine import Finding
from ..rules.rule import Statement
from ..stack.merge import BudgetEntry, LimitEntry
from ..values.foreign_code import error_text
from .call_table import CallState, Session
from .program import CompiledRule

DENIES_LATER = frozenset({*LIMITS, "budget", *(kind for kind, rule in RULES.items() if rule.denies_later)})
"""Kinds whose violation denies every later call: with a gate, a deny needs no cancel."""


def violation_of(
    stack: str,
    broken: CompiledRule | LimitEntry | BudgetEntry,
    finding: Finding,
    call: CallState | None,
    session: Session,
) -> Violation:
    """The violation of a rule, a limit or a budget, about a call or not; what the finding says itself wins."""
    written: Statement | Limit | Budget
    position, cause = 0, finding.cause
    if isinstance(broken, CompiledRule):
        written, rule, kind = broken.clause.record, broken.id, broken.kind
        position = session.count + 1 if call and broken.machine.evaluates_order else 0
    elif isinstance(broken, LimitEntry):
        written, rule, kind, cause = broken.limit, broken.name, broken.name, "budget"
    else:
        written, rule, kind, cause = broken.budget, broken.budget.name, "budget", "budget"
    action, unpreventable = finding.action or broken.action, getattr(written, "unpreventable", None)
    return Violation(
        policy=broken.policy,
        stack=stack,
        rule=rule,
        kind=kind,
        action=action,
        enforcement=_enforcement(action, call, unpreventable),
        message=_message(finding, written.description, position),
        details=_details(finding, written.description, call, session),
        cause=cause,
        reason=finding.reason or written.reason,
        tell_model=finding.tell_model or written.tell_model,
        unpreventable=unpreventable,
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

"""`human-approval` where a rule says what must come first: a person's approval of the judged call, not a tool."""

from __future__ import annotations

from ..language.selectors import HUMAN, Selector, is_person
from .machine import Finding, JudgedCall
from .wording import items_of

PERSON = "a person's approval"


def asks_person(selector: Selector) -> bool:
    """Whether a person's approval will do."""
    return any(map(is_person, items_of(selector)))


def calls_in(selector: Selector) -> Selector:
    """A selector without the person: the calls that will do; it may name none."""
    return tuple(item for item in items_of(selector) if not is_person(item)) if asks_person(selector) else selector


def approval_of(call: JudgedCall, also: str = "") -> Finding:
    """Ask for the approval; `also` says what else would do."""
    return Finding(
        expected=f"{PERSON}{f' or {also}' if also else ''} before `{call.name}`",
        actual=f"`{call.name}` needs a person's approval",
        details={"first": HUMAN},
        action="request_approval",
    )

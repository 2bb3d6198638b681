"""A new rule family needs one file: everything else works with it unchanged."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from proctor.policies import PolicyError, ToolCall, compile_policy, events, merge_policies, parse_policies, preflight
from proctor.policies.analysis import Findings
from proctor.policies.diagram import draw
from proctor.policies.language.selectors import NameScope, Selector, selector_problems
from proctor.policies.policy import Allow, Deny, Policy
from proctor.policies.reading.schema import json_schema
from proctor.policies.rules import RULES, Check
from proctor.policies.rules.machine import EvaluatedCall, Finding, Machine, RuleState, ToolReturn, slots_of
from proctor.policies.rules.petri_net import Net
from proctor.policies.rules.rule import Link, Obligation, Profile, Rule, Statement, names
from proctor.policies.values.model_base import Issue

TOOL, BY = 1, 2


class Confirmed(Rule, tag="confirmed", frozen=True):
    """Each successful call of `tool` must be confirmed by one of `by` before the next, and before the
    session's end.
    """

    tool: Selector
    by: Selector

    def problems(self) -> Iterator[Issue]:
        yield from super().problems()
        yield from selector_problems(self.tool, ("tool",))
        yield from selector_problems(self.by, ("by",))

    def profile(self) -> Profile:
        """If keyed, a confirmation counts for its key only."""
        return Profile(
            words=f"{names(self.tool)} confirmed by {names(self.by)}",
            restricts=(self.tool,),
            evidence=(self.by,),
            obligation=Obligation(self.by, of="completed", after=self.tool),
            abstraction=(self,) if self.key is None else (),
            drawing=(Link("confirmed by", (self.tool,), self.by),),
        )


class ConfirmedState(RuleState):
    """Whether a call is unconfirmed."""

    waits: bool = False


class ConfirmedMachine(Machine, evaluates=Confirmed):
    """Observes how calls end."""

    state_type = ConfirmedState
    restricts = TOOL
    evaluates_order = True
    outcomes = TOOL | BY

    def __init__(self, rule: Confirmed, scope: NameScope) -> None:
        self.slots = slots_of(scope, (rule.tool, False), (rule.by, True))

    def evaluate(self, state: ConfirmedState, call: EvaluatedCall, mask: int, now: int) -> Finding | None:
        return (
            Finding("a confirmation first", "the last call is not confirmed") if mask & TOOL and state.waits else None
        )

    def completed(self, state: ConfirmedState, call: EvaluatedCall, mask: int, output: ToolReturn) -> None:
        state.waits = bool(mask & TOOL)

    def finding_at_end(self, state: ConfirmedState) -> Finding | None:
        return Finding("a confirmation", "the session ended without one") if state.waits else None

    def denies_all(self, state: ConfirmedState, sure: int, maybe: int, now: int, ahead: EvaluatedCall) -> bool:
        return bool(sure & TOOL) and state.waits


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the registry."""
    monkeypatch.setitem(RULES, "confirmed", Confirmed)


RULE = {"type": "confirmed", "id": "c", "tool": "pay", "by": "receipt"}


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    return merge_policies(
        parse_policies({"version": 1, "name": "p", "on_violation": "deny", "rules": [*rules], **more})
    )


def found(*rules: dict[str, Any], **more: Any) -> Findings:
    return preflight(policy(RULE, *rules, **more))


@pytest.mark.parametrize(
    "family", [*RULES.values(), Check, Confirmed, Allow, Deny, Net], ids=lambda cls: cls.__name__
)
def test_every_clause_implements_all_of_rule(family: type[Statement]) -> None:
    """The abstract members exist; the type checker reports a missing one wherever an instance is created."""
    missing = [name for name in dir(family) if getattr(getattr(family, name), "__isabstractmethod__", False)]

    assert missing == []


def test_the_family_is_parsed_and_checked() -> None:
    """A missing field and a bad pattern are reported."""
    with pytest.raises(PolicyError, match="by"):
        policy({"type": "confirmed", "tool": "pay"})
    with pytest.raises(PolicyError, match=r"rules\[0\]\.by"):
        policy({"type": "confirmed", "tool": "pay", "by": []})


def test_the_family_is_in_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())

    assert validator.is_valid({"name": "p", "rules": [RULE]})
    assert not validator.is_valid({"name": "p", "rules": [{**RULE, "bye": "x"}]})


def test_the_family_is_evaluated_explained_narrowed_and_reported() -> None:
    """With and without a key. The final report has its obligations."""
    for rule in (RULE, {**RULE, "key": "$.id"}):
        compiled = compile_policy(policy(rule))
        monitor = compiled.monitor(explain=True)
        assert monitor.propose(ToolCall(id="1", name="pay", turn=1)).action == "allow"
        monitor.observe(events.ToolCallCompleted(tool_call_id="1", tool_name="pay", tool_output=None))
        monitor = compiled.restore(monitor.snapshot(), explain=True)
        denied = monitor.propose(ToolCall(id="2", name="pay", turn=2))

        assert denied.action == "deny"
        assert "c: deny, the last call is not confirmed" in denied.explain()
        assert denied.violations[0].message == "the last call is not confirmed (call 2)"
        assert monitor.narrow(["pay", "receipt"]) == (["receipt"] if rule is RULE else ["pay", "receipt"])
        assert monitor.finish().rules["c"].status == "violated"


def test_the_family_is_drawn() -> None:
    (section,) = draw(policy(RULE)).sections

    assert [node.text for node in section.nodes] == ["pay", "receipt", "confirmed by"]
    assert [node.notes for node in section.nodes][-1] == ("c",)


def test_preflight_handles_what_the_family_needs_and_owes() -> None:
    """Alone, with other rules, and with a virtual name as its evidence."""
    paid: dict[str, Any] = {"type": "count", "tool": "pay", "of": "completed"}
    closing: dict[str, Any] = {"type": "never_after", "id": "n", "trigger": "pay", "forbidden": "receipt"}
    opening = {**closing, "trigger": "receipt", "forbidden": "pay"}
    virtual = [{"tool": "bash", "path": "$.command", "match": "receipt", "as": "receipt"}]

    assert found() == []
    assert [f.code for f in found(tool_rules=[{"deny": ["receipt"]}])] == ["never_satisfied"]
    for impossible in ([{**paid, "min": 1}, closing], [{**paid, "exact": 2}, opening]):
        (refusal,) = found(*impossible).refusals
        assert "`c`: `pay` confirmed by `receipt`" in refusal.witness
    for possible in (
        [{**paid, "min": 2}],
        [{**paid, "exact": 1}, opening],
        [{"type": "require", "tool": "pay"}, closing],
    ):
        assert found(*possible).refusals == ()
    assert [f.code for f in found(virtual_tools=virtual)] == ["virtual_evidence"]

"""Evaluating recorded sessions under a policy."""

from typing import Any

import pytest

from proctor.adapters.evaluate import SessionReport, judge_session, judge_sessions
from proctor.adapters.evaluate.fold import explained
from proctor.adapters.traces import TraceError
from proctor.policies import RunContext
from proctor.policies.events.calls import input_digest

from .conftest import Compile, MakeSession

NO_BASH = {"type": "blocklist", "id": "no-bash", "tools": ["bash"], "action": "deny"}
ASK = {"type": "tool_call_requested", "tool_call_id": "a1", "tool_name": "bash"}
START = {**ASK, "type": "tool_call_started"}
DENIED = {"type": "tool_call_denied", "tool_call_id": "a1", "tool_name": "bash"}
APPROVAL = {"approval_id": "p1", "tool_call_id": "a1", "tool_name": "bash", "input_digest": input_digest({})}
GRANTED = {"type": "tool_approval_granted", **APPROVAL, "by": "ana"}
ONCE = {"type": "count", "id": "once", "tool": "bash", "max": 1}


def rules_of(report: SessionReport) -> list[str]:
    """The rules that were violated, once for each violation."""
    return [violation.rule for violation in report.violations]


def test_a_session_without_violations_passes_and_every_violating_call_is_named(
    make_session: MakeSession, policy: Compile
) -> None:
    """Each rule with its status; event, call and tool. A warning is a violation too."""
    kept = judge_session(policy(NO_BASH, {"type": "require", "id": "r", "tool": "read"}), make_session("read"))
    broken = judge_session(policy({**NO_BASH, "action": "warn"}), make_session("read", "bash", "bash"))
    first, _ = broken.violations

    assert (kept.passed, kept.violations) == (True, [])
    assert kept.rules == {"no-bash": "held", "r": "held"}
    assert [(v.seq, v.tool_call_id, v.tool_name) for v in broken.violations] == [(3, "c1", "bash"), (5, "c2", "bash")]
    assert (first.rule, first.policy, first.kind) == ("no-bash", "p", "blocklist")
    assert (broken.passed, broken.rules) == (False, {"no-bash": "violated"})


def test_a_requested_call_gets_a_decision_and_counts_once(make_session: MakeSession, policy: Compile) -> None:
    """The decision of a gate. The log of a gated run also has its start, which is the same call."""
    report = judge_session(policy(NO_BASH), make_session(ASK, {**ASK, "tool_call_id": "a2", "tool_name": "read"}))

    assert isinstance(report.decisions, list)
    assert [(d.tool_call_id, d.action, d.violations) for d in report.decisions] == [
        ("a1", "deny", ["no-bash"]),
        ("a2", "allow", []),
    ]
    assert rules_of(judge_session(policy(NO_BASH), make_session(ASK, START))) == ["no-bash"]
    assert judge_session(policy(ONCE), make_session(ASK, START)).passed
    assert not judge_session(policy(ONCE), make_session(ASK, START, "bash")).passed


def test_an_approved_call_keeps_its_decision_and_violates_nothing(make_session: MakeSession, policy: Compile) -> None:
    """The requirement was satisfied."""
    held = policy({**NO_BASH, "action": "request_approval"})
    requested = {"type": "tool_approval_requested", **APPROVAL}

    report = judge_session(held, make_session(ASK, requested, GRANTED, START))

    assert isinstance(report.decisions, list)
    assert [decision.action for decision in report.decisions] == ["request_approval"]
    assert rules_of(report) == []
    assert report.passed
    assert report.rules == {"no-bash": "held"}


def test_a_denied_call_spends_nothing(make_session: MakeSession, policy: Compile) -> None:
    """The evaluated policy would have allowed it, but it never ran."""
    assert judge_session(policy(ONCE), make_session(ASK, DENIED, "bash", never_ran={"a1"})).passed


def test_a_call_that_never_ran_can_violate_rules_but_satisfies_none(
    make_session: MakeSession, policy: Compile
) -> None:
    """A gate would have denied it. A request alone satisfies no requirement."""
    rules = policy(NO_BASH, {"type": "require", "id": "r", "tool": "verify"})
    verify = {"type": "tool_call_requested", "tool_call_id": "v", "tool_name": "verify"}

    report = judge_session(rules, make_session(ASK, verify, never_ran={"a1", "v"}))

    assert rules_of(report) == ["no-bash", "r"]
    assert report.rules == {"no-bash": "violated", "r": "violated"}


def test_an_allowed_call_counts_from_that_moment(make_session: MakeSession, policy: Compile) -> None:
    """In a log with requests only, as for parallel calls."""
    once = policy({**ONCE, "action": "deny"})

    report = judge_session(once, make_session(ASK, {**ASK, "tool_call_id": "a2"}))

    assert isinstance(report.decisions, list)
    assert [decision.action for decision in report.decisions] == ["allow", "deny"]


def test_the_end_of_a_complete_session_decides_obligations(make_session: MakeSession, policy: Compile) -> None:
    """A required call that never came is a violation at the last event. Before the end it may still come."""
    required = policy({"type": "require", "id": "r", "tool": "verify"})
    report = judge_session(required, make_session("read"))
    pending = judge_session(required, make_session("read", complete=False))

    assert [(v.rule, v.seq, v.tool_call_id) for v in report.violations] == [("r", 2, None)]
    assert report.rules == {"r": "violated"}
    assert (pending.passed, pending.rules) == (True, {"r": "pending"})


def test_findings_of_an_earlier_policy_are_not_reused(make_session: MakeSession, policy: Compile) -> None:
    """The log of a supervised run is evaluated again, even under its own policy."""
    capped = policy(ONCE, limits={"max_tool_calls": 1})
    concluded = {
        "type": "policy_violation",
        "policy": "p",
        "rule": "max_tool_calls",
        "kind": "max_tool_calls",
        "action": "cancel",
        "enforcement": "observed",
    }

    assert rules_of(judge_session(capped, make_session("bash", concluded, "bash"))) == rules_of(
        judge_session(capped, make_session("bash", "bash"))
    )
    assert judge_session(policy(NO_BASH), make_session(concluded)).passed


def test_rules_with_when_read_the_context(make_session: MakeSession, policy: Compile) -> None:
    """The caller's, completed with the session and model from the log. A rule with a missing value is not
    evaluated.
    """
    for_interns = policy({**NO_BASH, "when": [{"path": "$.user_role", "equals": "intern"}]})
    for_small = policy({**NO_BASH, "when": [{"path": "$.model", "equals": "small"}]})
    session = make_session("bash", model="small")

    assert judge_session(for_interns, session, RunContext(user_role="admin")).passed
    assert judge_session(for_interns, session).unjudged == ["no-bash"]
    assert not judge_session(for_interns, session).passed
    assert not judge_session(for_interns, session, RunContext(user_role="intern")).passed
    assert not judge_session(for_small, session).passed
    assert judge_session(for_small, session, RunContext(model="large")).passed


@pytest.mark.parametrize("ran", [True, False])
def test_a_call_requested_after_its_time_is_denied(make_session: MakeSession, policy: Compile, ran: bool) -> None:
    """The time passes with its request, before it is decided on: in a report, and where a run is explained."""
    limited = policy(limits={"max_duration_ms": {"max": 900, "action": "deny"}})
    session = make_session(
        {"type": "run_started", "at": "2026-01-01T00:00:00Z"},
        {**ASK, "at": "2026-01-01T00:00:01Z"},
        {**(START if ran else DENIED), "at": "2026-01-01T00:00:01Z"},
        never_ran=() if ran else ["a1"],
    )
    report = judge_session(limited, session)
    [explanation, *_] = [
        each for each in explained(limited, session.events, RunContext()) if each.decision is not None
    ]

    assert [each.action for each in report.decisions or []] == ["deny"]
    assert rules_of(report) == ["max_duration_ms"]
    assert explanation.decision.action == "deny"


def test_a_limit_that_only_warns_when_a_call_is_requested_is_explained(
    make_session: MakeSession, policy: Compile
) -> None:
    """It is no part of the decision, and has no other event."""
    limited = policy(NO_BASH, limits={"max_duration_ms": {"max": 900, "action": "warn"}})
    session = make_session(
        {"type": "run_started", "at": "2026-01-01T00:00:00Z"}, {**ASK, "at": "2026-01-01T00:00:01Z"}
    )
    [step] = explained(limited, session.events, RunContext())

    assert [each.rule for each in step.decision.violations] == ["no-bash"]
    assert [each.rule for each in step.violations] == ["max_duration_ms"]


def test_a_session_is_not_idle_since_before_a_request(make_session: MakeSession, policy: Compile) -> None:
    """Also if the call is denied here and ran then."""
    limited = policy(NO_BASH, limits={"max_idle_ms": {"max": 5000, "action": "deny"}})
    session = make_session(
        {"type": "run_started", "at": "2026-01-01T00:00:00Z"},
        {**ASK, "at": "2026-01-01T00:00:04Z"},
        {**START, "at": "2026-01-01T00:00:08Z"},
    )

    assert rules_of(judge_session(limited, session)) == ["no-bash"]


def test_a_limit_that_warns_is_reported_once_also_by_calls_that_did_not_run(
    make_session: MakeSession, policy: Compile
) -> None:
    """Each was denied by another rule."""
    warns = policy(NO_BASH, limits={"max_tool_calls": {"max": 0, "action": "warn"}})
    other = {"tool_call_id": "a2"}
    report = judge_session(
        warns, make_session(ASK, DENIED, {**ASK, **other}, {**DENIED, **other}, never_ran=["a1", "a2"])
    )

    assert rules_of(report) == ["no-bash", "max_tool_calls", "no-bash"]


def test_an_impossible_amount_is_an_error_that_names_the_session(make_session: MakeSession, policy: Compile) -> None:
    """One of thousands of sessions in a file is wrong."""
    session = make_session("read", {"type": "token_usage_updated", "output_tokens": -5})

    with pytest.raises(TraceError, match=r"traces/one\.jsonl: session `s1`, event 3: .*`output_tokens` is -5"):
        judge_session(policy(), session)


def test_sessions_are_evaluated_in_turn_and_separately(make_session: MakeSession, policy: Compile) -> None:
    """Events of one session do not count in the next. Progress is reported after each."""
    once = policy(ONCE)
    sessions = [make_session("bash", id="a"), make_session("bash", id="b")]
    counts: list[int] = []
    evaluated = judge_sessions(once, iter(sessions), progress=counts.append)

    first = next(evaluated)
    assert (first[0].id, counts) == ("a", [])
    assert [report.passed for _, report in [first, *evaluated]] == [True, True]
    assert counts == [1, 2]


RUN = [{"type": "run_started", "run_id": id} for id in ("r1", "r2")]


@pytest.mark.parametrize("events", [[RUN[0], START, RUN[1], START], [RUN[0], ASK, DENIED, ASK, DENIED]])
def test_a_reused_id_of_a_finished_call_is_another_call(
    make_session: MakeSession, policy: Compile, events: list[Any]
) -> None:
    """Each has its own violations."""
    report = judge_session(policy(NO_BASH), make_session(*events))

    assert [found.seq for found in report.violations] == [2, 4]


def test_a_reused_id_of_a_call_that_did_not_run_is_evaluated_and_not_spent(
    make_session: MakeSession, policy: Compile
) -> None:
    """Of three requests with one id, the last ran; the others spend nothing."""
    once = policy({**ONCE, "action": "deny"})
    done = {"type": "tool_call_completed", "tool_call_id": "a1", "tool_name": "bash"}
    report = judge_session(once, make_session(ASK, ASK, ASK, START, done))

    assert report.passed


def test_an_approved_call_is_evaluated_again_at_its_approval(make_session: MakeSession, policy: Compile) -> None:
    """A rule that was violated while the call was pending is found, as in the live run."""
    held = {"type": "blocklist", "id": "held", "tools": ["bash"], "action": "request_approval"}
    late = {"type": "never_after", "id": "late", "trigger": "close", "forbidden": "bash", "action": "deny"}
    report = judge_session(policy(held, late), make_session(ASK, "close", GRANTED, DENIED, never_ran={"a1"}))

    assert [(found.rule, found.action) for found in report.violations] == [("late", "deny")]
    assert report.rules == {"held": "held", "late": "violated"}


def test_an_approval_withdraws_no_finding_about_an_earlier_call_of_its_id(
    make_session: MakeSession, policy: Compile
) -> None:
    """Agents number the calls of each run from 1."""
    held = policy({**NO_BASH, "action": "request_approval"})
    report = judge_session(held, make_session(RUN[0], ASK, START, RUN[1], ASK, GRANTED, START))

    assert [(found.rule, found.seq) for found in report.violations] == [("no-bash", 2)]

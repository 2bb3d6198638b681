"""`test`: sessions written as lists of calls, with the expected decisions."""

from pathlib import Path
from typing import Any

import pytest

REFUNDS = """\
name: refunds
on_violation: deny
tool_rules:
  - {deny: [delete], action: cancel}
  - {deny: [push], when: [{path: $.user_role, equals: guest}]}
rules:
  - {type: before, id: lookup-first, first: lookup, then: refund}
  - {type: count, id: second-refund, tool: refund, max: 1, action: request_approval}
  - {type: count, id: third-refund, tool: refund, max: 2}
"""


@pytest.fixture
def run_tests(cli: Any, place: Path) -> Any:
    """`proctor test` of tests of the policy above; by default one test of these calls."""
    place.joinpath("refunds.yaml").write_text(REFUNDS)

    def run(*calls: str, more: str = "", options: tuple[str, ...] = ()) -> Any:
        listed = "".join(f"      - {call}\n" for call in calls)
        context = "" if "context:" in more else "    context: {user_role: admin}\n"
        text = f"policies: [refunds.yaml]\ntests:\n  - name: one\n{context}    calls:\n{listed}{more}"
        place.joinpath("one.test.yaml").write_text(text)
        return cli("test", *options, "one.test.yaml")

    return run


def test_expected_decisions_pass(run_tests: Any) -> None:
    """Denied, also after a failed call; allowed because of earlier calls; pending. A cancel is the last."""
    answer = run_tests(
        "{tool: refund, expect: deny, rules: [lookup-first]}",
        "{tool: lookup, error: the database is down}",
        "{tool: refund, expect: deny}",
        "{tool: lookup, result: found}",
        "{tool: refund, input: {amount: 5}, rules: []}",
        "{tool: refund, expect: request_approval}",
        "{tool: delete, expect: cancel}",
    )

    assert (answer.code, answer.out, answer.err) == (0, "1 passed\n", "")


def test_an_unexpected_decision_fails_and_is_shown(run_tests: Any) -> None:
    """The expected and the actual decision, with the call marked. Later calls are omitted."""
    answer = run_tests("{tool: lookup}", "{tool: refund, expect: deny}", "{tool: refund, expect: deny}")

    assert answer.code == 1
    assert "FAILED one\n" in answer.out
    assert "  expected:   deny\n  actual:     allow\n" in answer.out
    assert "       1. lookup()\n  >    2. refund()  <-- here\n         ... 1 more call\n" in answer.out
    assert answer.out.endswith("0 passed, 1 failed\n")


def test_a_call_that_only_a_budget_would_deny_has_a_note_about_budgets(cli: Any, place: Path) -> None:
    """Other runs share them, so a test can't know what is left. A rule's decision needs no note."""
    place.joinpath("team.yaml").write_text("name: team\nbudgets: [{name: day, max_tool_calls: 1, window: day}]\n")
    place.joinpath("one.test.yaml").write_text(
        "policies: [team.yaml, {name: org, tool_rules: [{deny: [delete], action: deny}]}]\n"
        "tests:\n"
        "  - {name: budget, calls: [read, {tool: read, expect: cancel}]}\n"
        "  - {name: rule, calls: [delete]}\n"
    )

    answer = cli("test", "one.test.yaml")

    assert "  actual:     allow (tests count no budgets)\n" in answer.out
    assert answer.out.count("tests count no budgets") == 1


def test_the_violated_rules_are_compared_if_given(run_tests: Any) -> None:
    """All of them; the message has the reason."""
    (line,) = run_tests("{tool: refund, expect: deny, rules: [second-refund]}", options=("--json",)).lines
    (mismatch,) = line["mismatches"]

    assert (line["file"], line["test"], line["passed"]) == ("one.test.yaml", "one", False)
    assert (mismatch["call"], mismatch["expected"]) == (1, "deny by `second-refund`")
    assert mismatch["actual"].startswith("deny by `lookup-first`: ")


def test_a_pending_call_runs_only_if_it_has_an_outcome(run_tests: Any) -> None:
    """With a result it was approved; otherwise it was declined, and counts for no rule."""
    held = "{tool: refund, expect: request_approval, rules: [second-refund]%s}"
    before = ("{tool: lookup}", "{tool: refund}")
    ran = run_tests(
        *before, held % ", result: done", "{tool: refund, expect: deny, rules: [second-refund, third-refund]}"
    )
    declined = run_tests(*before, held % "", held % "")

    assert (ran.code, ran.out) == (0, "1 passed\n")
    assert (declined.code, declined.out) == (0, "1 passed\n")


@pytest.mark.parametrize(("calls", "more", "code", "words"), [
    (("lookup", "refund"), "", 0, "1 passed"),
    (("lookup", "refund"), "    expect: allow\n", 0, "1 passed"),
    (("lookup", "refund"), "    expect: deny\n", 1, "actual:     allow"),
    (("refund",), "    expect: deny\n", 0, "1 passed"),
    (("{tool: refund, expect: deny}",), "    expect: deny\n", 2, "its last call has one"),
    (("refund",), "    expect: explode\n", 2, "expected `allow`"),
    (("push",), "    context: {user_role: guest}\n", 1, "actual:     deny"),
    (("push",), "    context: {user_role: admin}\n", 0, "1 passed"),
])  # fmt: skip
def test_calls_may_be_names_and_a_test_may_have_one_decision_and_a_context(
    run_tests: Any, calls: tuple[str, ...], more: str, code: int, words: str
) -> None:
    """The decision is on the last call; earlier ones are allowed. The context has the values for `when`."""
    answer = run_tests(*calls, more=more)

    assert answer.code == code
    assert words in answer.out + answer.err


def test_statuses_at_the_end_are_compared(run_tests: Any) -> None:
    """Those that are given."""
    answer = run_tests("{tool: lookup}", more="    ends: {lookup-first: held, second-refund: held}\n")

    assert answer.code == 1
    assert "expected:   `second-refund` held at the end\n  actual:     not_exercised\n" in answer.out
    assert "  > the session ended here\n" in answer.out


LIMITS = "{name: own, limits: {max_cost_usd: 2, max_duration: 10m, max_idle: 5m, max_turns: 3}}"
REFUND = "{type: precondition, tool: refund, requires: [{user_said: refund}]}"
OUTSIDE = (
    "{name: own, on_violation: deny, tool_rules: [{deny: [{tool: write, where: [{path: $.path, regex: etc}]}]}]}"
)


@pytest.mark.parametrize(
    ("policies", "test"),
    [
        (LIMITS, "calls: [{tool: x, used: {cost_usd: 1.5}}, {tool: x, used: {cost_usd: 0.6}, expect: cancel}]"),
        (LIMITS, "calls: [{tool: x}, {tool: x, after_s: 301, expect: cancel, rules: [max_idle_ms]}]"),
        (
            LIMITS,
            "calls: [{tool: x, after_s: 290}, {tool: x, after_s: 290}, {tool: x, after_s: 290, expect: cancel}]",
        ),
        (
            LIMITS,
            "calls: [{tool: x}, {tool: x}, {tool: x}, {tool: x, same_turn: true},"
            " {tool: x, expect: cancel, rules: [max_turns]}]",
        ),
        (LIMITS, "calls: [{tool: x}, {tool: x, turns_without_calls: 2, expect: cancel, rules: [max_turns]}]"),
        (
            f"{{name: own, on_violation: deny, rules: [{REFUND}]}}",
            "calls: [{tool: refund, expect: deny}, {tool: refund, user: a refund please}]",
        ),
        (OUTSIDE, "agent: claude, calls: [{tool: Write, input: {file_path: /etc/x}, expect: deny}]"),
        (OUTSIDE, "agent: copilot, calls: [{tool: create, input: {path: /etc/x}, expect: deny}]"),
        (OUTSIDE, "agent: Cursor, calls: [{tool: Write, input: {path: /etc/x}, expect: deny}]"),
        (OUTSIDE, "calls: [{tool: Write, input: {file_path: /etc/x}, expect: allow}]"),
        ("{name: own, rules: [{type: require, id: receipt, tool: receipt}]}", "ends: {receipt: violated}"),
        (
            "org.yaml, {name: own, tool_rules: [{deny: [read], action: deny}]}",
            "calls: [{tool: read, expect: deny}, {tool: delete, expect: deny}]",
        ),
    ],
)
def test_everything_in_a_session_is_evaluated(cli: Any, place: Path, policies: str, test: str) -> None:
    """Usage, time, turns, messages of the user, an agent's tool names, an end without calls.

    Policies may be in the file or named; from standard input, their paths are relative to the current folder.
    """
    answer = cli("test", "-", stdin=f"policies: [{policies}]\ntests: [{{name: one, {test}}}]\n")

    assert (answer.code, answer.out) == (0, "1 passed\n")


X = "calls: [{tool: x}]"


@pytest.mark.parametrize(("policies", "tests", "place_and_message"), [
    ("none.yaml", f"{{name: a, {X}}}", "1:12: error: there is no file `none.yaml`"),
    ("{name: a, limts: {}}", f"{{name: a, {X}}}", "1:22: error: unknown key `limts`"),
    ("org.yaml", "", "2:8: error: there are no tests"),
    ("org.yaml", f"{{name: a, agent: clade, {X}}}", "2:26: error: the tools of"),
    ("org.yaml", "{name: a, calls: [x, {tool: x, same_turn: true, turns_without_calls: 1}]}", "2:78: error: no turn"),
    ("org.yaml", "{name: a, calls: [{tool: x, same_turn: true}]}", "2:48: error: there is no"),
    ("org.yaml", "{name: a}", "2:9: error: the test expects nothing"),
    ("org.yaml", "{name: a, calls: [{tool: x, expect: no}]}", "2:45: error: expected `allow`"),
    ("org.yaml", f"{{name: a, context: {{tennant: x}}, {X}}}", "2:29: error: unknown"),
    ("org.yaml", f"{{name: a, context: {{tenant: 1}}, {X}}}", "2:37: error: `tenant`"),
    ("org.yaml", "{name: a, ends: {none: held}}", "2:26: error: no rule is called `none`"),
    ("org.yaml", "{name: a, calls: [{tool: x, expect: deny, result: 1}]}", "2:59: error: a denied call has no"),
    ("org.yaml", "{name: a, calls: [{tool: x, error: 1, result: 1}]}", "2:44: error: a call has a `result` or"),
    ("org.yaml", "{name: a, calls: [{tool: x, expect: cancel}, {tool: x}]}", "2:54: error: no call can follow one"),
    ("org.yaml", f"{{name: a, {X}}}, {{name: a, {X}}}", "2:47: error: another test is called `a`"),
])  # fmt: skip
def test_a_mistake_in_a_file_is_reported_at_its_position(
    cli: Any, place: Path, policies: str, tests: str, place_and_message: str
) -> None:
    """Exit code 2, before anything is evaluated."""
    place.joinpath("bad.yaml").write_text(f"policies: [{policies}]\ntests: [{tests}]")
    answer = cli("test", "bad.yaml")

    assert (answer.code, answer.out) == (2, "")
    assert f"bad.yaml:{place_and_message}" in answer.err


def test_the_problems_of_all_files_are_reported_at_once(cli: Any, place: Path) -> None:
    """Of the tests, of the policies they name, and of a policy given instead of tests."""
    place.joinpath("wrong.yaml").write_text("name: wrong\nlimts: {}\n")
    place.joinpath("a.yaml").write_text("policies: [wrong.yaml]\ntests: []\n")
    answer = cli("test", "a.yaml", "none.yaml", "org.yaml")

    assert answer.code == 2
    for part in ("a.yaml:2:8", "wrong.yaml:2:1", "none.yaml: error", "org.yaml:1:1: error: a policy, not a file of"):
        assert part in answer.err
    assert answer.err.endswith("4 problems\n")

"""`prove`: questions about every session, answered by a proof or a counterexample."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

PAYMENTS = """\
name: payments
on_violation: deny
rules:
  - {id: approved, type: before, first: approve, then: pay}
  - {id: three, type: count, tool: pay, max: 3}
"""
STRICTER = PAYMENTS.replace("max: 3", "max: 2").replace("three", "two")
LOOSER = PAYMENTS.replace("  - {id: three, type: count, tool: pay, max: 3}\n", "")


@pytest.fixture
def proved(cli: Any, place: Path) -> Any:
    """`proctor prove payments.yaml` with other policies beside it."""
    for name, text in {"payments": PAYMENTS, "stricter": STRICTER, "looser": LOOSER}.items():
        place.joinpath(f"{name}.yaml").write_text(text)
    return lambda *arguments: cli("prove", "payments.yaml", *arguments)


@pytest.mark.parametrize(("question", "code", "verdict"), [
    (("--property", "looser.yaml"), 0, "proved"),
    (("--property", "stricter.yaml"), 1, "refuted"),
    (("--no-looser-than", "looser.yaml"), 0, "proved"),
    (("--no-looser-than", "looser.yaml", "--no-looser-than", "stricter.yaml"), 1, "refuted"),
    (("--same-as", "payments.yaml"), 0, "proved"),
    (("--same-as", "looser.yaml"), 1, "refuted"),
    (("--reach", "pay(amount=5)"), 1, "refuted"),
    (("--reach", "pay", "--tools", "pay"), 0, "proved"),
])  # fmt: skip
def test_a_question_has_an_answer_and_an_exit_code(
    proved: Any, question: tuple[str, ...], code: int, verdict: str
) -> None:
    """0 proved; 1 refuted, with a session that ends with the call in question."""
    answer = proved(*question, "--json")
    (line,) = answer.lines

    assert (answer.code, line["verdict"]) == (code, verdict)
    assert set(line) == {"question", "verdict", "session", "explored", "reason"}
    assert bool(line["session"]) is (verdict == "refuted")
    assert all({"tool", "input", "decision", "outcome"} <= set(call) for call in line["session"])


def test_a_session_is_readable_in_80_columns(proved: Any) -> None:
    """Calls with inputs and decisions; the last is the one in question."""
    long = "x" * 200
    answer = proved("--reach", f'pay(amount>5000, to="{long}")')

    assert answer.code == 1
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "   1. approve()\n        allow, completed\n   2. pay(" in answer.out
    assert answer.out.startswith("refuted  reach pay(")


def test_several_questions_are_answered_each_on_a_line(proved: Any) -> None:
    """In the order of the options. The exit code is the worst."""
    answer = proved("--no-looser-than", "looser.yaml", "--reach", "pay", "--reach", "approve(x=1)", "--json")

    assert [line["question"] for line in answer.lines] == [
        *("no looser than looser.yaml", "reach pay", "reach approve(x=1)")
    ]
    assert answer.code == 1


@pytest.mark.parametrize("call", [
    *("{tool: pay, where: [{path: $.amount, gt: 5}]}", '[refund, {"tool": "pay"}]', "pay(to~'^x')"),
    'pay($.order.id="7", order.sum<=3)',
])  # fmt: skip
def test_a_call_can_be_written_in_several_ways(cli: Any, place: Path, call: str) -> None:
    """As a rule's selector, with text in single quotes, with paths as in conditions."""
    place.joinpath("open.yaml").write_text("name: open\nrules: []\n")
    assert cli("prove", "open.yaml", "--reach", call).code == 1


@pytest.mark.parametrize(("call", "column"), [
    *(("{tol: pay}", 1), ("{tool: pay", 11), ("pay(", 1), ("pay(a=b)", 7), (" ", 1), ("pay(1=2)", 5)),
    *(("[" * 9_999, 1), (f"pay(a={'[' * 99_999})", 7)),
    *(('pay(a~"[")', 1), ("p[", 1), ("{tool: pay, where: [{path: $.a, within: 'x*'}]}", 1)),
])  # fmt: skip
def test_an_invalid_call_is_an_error_at_its_column(cli: Any, place: Path, call: str, column: int) -> None:
    """Exit code 2."""
    place.joinpath("open.yaml").write_text("name: open\nrules: []\n")
    answer = cli("prove", "open.yaml", "--reach", call)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"--reach:1:{column}: error: ")


def test_a_counterexample_becomes_a_test_a_session_and_a_diagram(cli: Any, proved: Any, place: Path) -> None:
    """The policy allows it and the property does not. The test passes until the policy is fixed.

    The test has the relative path of the policy. The diagram has the calls in order, with the last one marked.
    """
    place.joinpath("tests").mkdir()
    kept = ("--write-test", "tests/found.yaml", "--write-session", "found.jsonl", "--graph", "found.mmd")
    proved("--property", "stricter.yaml", *kept)
    evaluated = [cli("eval", "--policy", f"{name}.yaml", "found.jsonl").code for name in ("payments", "stricter")]
    before = cli("test", "tests/found.yaml")
    place.joinpath("payments.yaml").write_text(STRICTER)
    after = cli("test", "tests/found.yaml")
    drawn = place.joinpath("found.mmd").read_text()

    assert (evaluated, before.code, after.code) == ([0, 1], 0, 1)
    assert drawn.startswith("flowchart LR\n")
    assert 's0c4["4. pay()<br/><small>allow, running</small><br/><small>against two</small>"]:::tool' in drawn
    assert "class s0c4 violated" in drawn


EVERY_ACTION = """\
name: every-action
on_violation: deny
tool_rules:
  - {id: ends, deny: [drop], action: cancel}
  - {id: asks, deny: [pay], action: request_approval}
  - {id: notes, deny: [look], action: warn}
rules:
  - {id: looked, type: before, first: look, then: report, when: [{path: $.labels.env, equals: prod}]}
"""
ANSWERED = {
    ("a refusal and a failure", "drop,pay"): ["cancel", "request_approval"],
    ("pay, look", "any"): ["request_approval", "warn"],
    ("report in prod", "any"): ["warn", "allow"],
    ("any audit", "any"): [],
}
PROPERTIES = {
    "a refusal and a failure": "{type: circuit_breaker, consecutive: 2}",
    "pay, look": "{type: forbidden_sequence, sequence: [pay, look], adjacency: any}",
    "report in prod": "{type: count, tool: report, max: 0, when: [{path: $.labels.env, equals: prod}]}",
    "any audit": "{type: require, tool: audit}",
}


@pytest.mark.parametrize(("property", "tools"), ANSWERED, ids=[property for property, _ in ANSWERED])
def test_a_saved_session_is_evaluated_as_it_was_shown(cli: Any, place: Path, property: str, tools: str) -> None:
    """By `eval`, and by `test` if a test can express it. Each action is right, and the context is included."""
    place.joinpath("policy.yaml").write_text(EVERY_ACTION)
    place.joinpath("property.yaml").write_text(f"name: property\nrules: [{PROPERTIES[property]}]\n")
    offered = () if tools == "any" else ("--tools", tools)
    kept = ("--write-test", "found.yaml", "--write-session", "found.jsonl", "--graph", "found.svg")
    found = cli("prove", "policy.yaml", "--property", "property.yaml", *offered, *kept, "--json")
    (line,) = found.lines
    (judged,) = cli("eval", "--policy", "policy.yaml", "found.jsonl", "--json", "--fail-on", "never").lines
    actions = [call["decision"] for call in line["session"]]

    assert actions == ANSWERED[property, tools]
    assert [each["action"] for each in judged.get("decisions", [])] == actions
    assert property != "report in prod" or line["context"] == {"labels": {"env": "prod"}}
    assert place.joinpath("found.svg").read_text().startswith("<svg")
    if place.joinpath("found.yaml").exists():
        assert cli("test", "found.yaml").code == 0
    else:
        assert "is not written: it " in found.err
    assert place.joinpath("found.yaml").exists() is (property in ("pay, look", "report in prod"))


def test_a_call_that_ends_late_is_shown_and_saved_so(cli: Any, place: Path) -> None:
    """Such as tests that ran while a file changed. A test can't express it, a recorded session can."""
    place.joinpath("policy.yaml").write_text("""\
name: tested
on_violation: deny
nets:
  - name: tested
    places: [tested]
    transitions:
      - {name: test, outputs: [tested], deferred: true, tools: [test]}
      - {name: change, inputs: [tested], tools: [write]}
      - {name: change-untested, tools: [write]}
      - {name: push, inputs: [tested], outputs: [tested], tools: [push]}
""")
    place.joinpath("property.yaml").write_text(
        "name: property\nrules: [{type: forbidden_sequence, sequence: [write, push]}]\n"
    )
    kept = ("--write-test", "found.yaml", "--write-session", "found.jsonl")
    found = cli("prove", "policy.yaml", "--property", "property.yaml", *kept)

    assert "   1. test()\n        allow, completed after call 2\n" in found.out
    assert "is not written: one of its calls ends after the next has begun" in found.err
    assert cli("eval", "--policy", "policy.yaml", "found.jsonl").code == 0


def test_turns_of_an_earlier_run_are_shown_and_written(cli: Any, place: Path) -> None:
    """Without them the call would be denied."""
    place.joinpath("turns.yaml").write_text("""\
name: turns
on_violation: deny
limits: {max_turns: {max: 2, action: cancel}}
rules: [{type: precondition, tool: pay, requires: [{turns_gte: 2}]}]
""")
    found = cli("prove", "turns.yaml", "--reach", "pay", "--write-session", "found.jsonl")

    assert "      turn 2 begins in run 1\n   1. pay()\n        allow, running, turn 1 of run 2\n" in found.out
    assert cli("eval", "--policy", "turns.yaml", "found.jsonl").code == 0
    nowhere = cli("prove", "turns.yaml", "--reach", "pay", "--write-test", "gone/found.yaml")
    assert (nowhere.code, "there is no folder `gone`" in nowhere.err) == (2, True)


def test_turns_without_a_call_are_in_the_test_that_is_written(cli: Any, place: Path) -> None:
    """The call would be denied earlier."""
    place.joinpath("late.yaml").write_text("""\
name: late
on_violation: deny
rules: [{type: precondition, tool: pay, requires: [{turns_gte: 2}]}]
""")
    found = cli("prove", "late.yaml", "--reach", "pay", "--write-test", "found.yaml")

    assert (found.code, "not written" in found.err) == (1, False)
    assert cli("test", "found.yaml").out == "1 passed\n"


def test_the_calls_of_one_turn_are_written_as_a_test_of_one_turn(cli: Any, place: Path) -> None:
    """In a turn of its own, the second call would be allowed."""
    place.joinpath("asks.yaml").write_text("""\
name: asks
on_violation: request_approval
rules: [{type: max_parallel, max: 1}]
""")
    place.joinpath("one.yaml").write_text("name: one\nrules: [{type: max_parallel, max: 1}]\n")
    found = cli("prove", "asks.yaml", "--no-looser-than", "one.yaml", "--write-test", "found.yaml")

    assert (found.code, "not written" in found.err) == (1, False)
    assert cli("test", "found.yaml").out == "1 passed\n"


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (
            "{tool: pay, where: {path: $.amount, gt: 3}}",
            "not a selector: expected a list, got an object at `$.where`",
        ),
        ("{tol: pay}", "not a selector: unknown key `tol`"),
    ],
)
def test_a_wrong_selector_of_a_call_is_explained(cli: Any, place: Path, call: str, wrong: str) -> None:
    """In the words of every other error about a policy."""
    place.joinpath("pay.yaml").write_text("name: pay\n")
    answer = cli("prove", "pay.yaml", "--reach", call)

    assert (answer.code, wrong in answer.err) == (2, True)


def test_nothing_is_written_if_nothing_is_refuted(proved: Any, place: Path) -> None:
    """It says so, and the exit code is the same."""
    answer = proved("--same-as", "payments.yaml", "--write-test", "found.yaml")

    assert (answer.code, place.joinpath("found.yaml").exists()) == (0, False)
    assert "nothing is refuted" in answer.err


def test_without_a_question_rules_without_effect_are_found(cli: Any, place: Path) -> None:
    """Each rule and each tool is a question."""
    rules = "[{id: few, type: count, tool: pay, max: 2}, {id: more, type: count, tool: pay, max: 5}]"
    place.joinpath("odd.yaml").write_text(f"{{name: odd, on_violation: deny, rules: {rules}}}")
    answer = cli("prove", "odd.yaml", "--json")

    assert answer.code == 1
    assert {line["question"]: line["reason"] for line in answer.lines if line["verdict"] == "refuted"} == {
        "rule more": "subsumed: `few` already stops all that `more` stops"
    }
    assert cli("prove", "odd.yaml").out.endswith("3 checked: 2 proved, 1 refuted, 0 unknown\n")


NO_SHELL = "name: no-shell\non_violation: deny\ntool_rules: [{deny: [bash]}]\n"


@pytest.mark.parametrize(("call", "policies"), [("Bash", True), ("Bsh", False), ("Bash(a=1, a=2)", False)])
def test_a_proof_that_needs_no_policy_says_so(cli: Any, place: Path, call: str, policies: bool) -> None:
    """A tool that the agent lacks, contradictory inputs. `Bash` of Claude Code is `bash`."""
    place.joinpath("no-shell.yaml").write_text(NO_SHELL)
    answer = cli("prove", "no-shell.yaml", "--reach", call, "--adapter", "claude", "--json")

    assert answer.code == 0, answer.out
    assert ("without the policies none does either: check its name" in answer.lines[0]["reason"]) != policies


def test_tools_of_servers_are_added_to_those_of_the_agent(cli: Any, place: Path) -> None:
    """The answer lists what was not searched: the agent has only these tools."""
    place.joinpath("no-shell.yaml").write_text(NO_SHELL)
    words = ("prove", "no-shell.yaml", "--reach", "mcp__hub__delete", "--adapter", "claude", "--json")

    [proved] = cli(*words).lines
    assert (proved["verdict"], "the agent has no other tools" in proved["explored"]["bounded"]) == ("proved", True)
    assert cli(*words, "--tools", "mcp__hub__delete").lines[0]["verdict"] == "refuted"


@pytest.mark.parametrize(("tools", "verdict"), [("hub_delete", "refuted"), ("hub", "proved")])
def test_a_servers_tool_is_proved_about_by_the_agents_name_of_it(
    cli: Any, place: Path, tools: str, verdict: str
) -> None:
    """That the agent may have servers adds no unnamed tool."""
    place.joinpath("no-shell.yaml").write_text(NO_SHELL)
    words = ("prove", "no-shell.yaml", "--reach", "mcp__*", "--adapter", "opencode", "--json")

    assert cli(*words, "--tools", tools).lines[0]["verdict"] == verdict


VIRTUAL = """\
name: pushes
on_violation: deny
virtual_tools: [{tool: bash, path: $.command, match: 'git push', as: git-push}]
aliases: {shells: [bash]}
tool_rules: [{deny: [git-push]}, {deny: [shells]}]
"""


@pytest.mark.parametrize("call", ["git-push", "shells"])
def test_a_name_that_a_policy_defines_is_not_misspelt(cli: Any, place: Path, call: str) -> None:
    """A virtual tool and an alias stay known without the rules."""
    place.joinpath("v.yaml").write_text(VIRTUAL)
    answer = cli("prove", "v.yaml", "--reach", call, "--tools", "bash", "--json")

    assert (answer.code, answer.lines[0]["verdict"]) == (0, "proved")
    assert "check its name" not in answer.lines[0]["reason"]


def test_a_test_that_passes_without_its_policy_says_so(cli: Any, place: Path) -> None:
    """A misspelt tool or contradictory inputs are no errors."""
    place.joinpath("no-shell.yaml").write_text("name: no-shell\non_violation: deny\ntool_rules: [{deny: [bash]}]\n")
    unreachable = ("bash", "bsh", "bash(a=1, a=2)")
    blocks = "".join(f"  - {{unreachable: '{call}', tools: [bash]}}\n" for call in unreachable)
    place.joinpath("t.yaml").write_text(f"policies: [no-shell.yaml]\nprove:\n{blocks}")
    lines, shown = cli("test", "t.yaml", "--json").lines, cli("test", "t.yaml")

    assert [line["passed"] for line in lines] == [True] * 3
    assert ["check its name and inputs" in line.get("note", "") for line in lines] == [False, True, True]
    assert (shown.code, shown.out) == (0, "3 passed\n")
    assert [line.split(": no session")[0] for line in shown.err.splitlines()] == [
        "t.yaml: unreachable bsh",
        "t.yaml: unreachable bash(a=1, a=2)",
    ]


PROVE = """\
policies: [payments.yaml]
prove:
  - property: looser.yaml
  - {name: two at most, property: {rules: [{type: count, tool: pay, max: 2}]}}
  - {no_looser_than: [looser.yaml]}
  - {reach: pay(amount=5)}
  - {unreachable: pay, tools: [pay]}
  - {unreachable: approve}
"""


def test_test_files_may_have_proofs(cli: Any, proved: Any, place: Path) -> None:
    """Each `prove` is a test; without a name it has its question's. A counterexample shows why one fails."""
    place.joinpath("prove.yaml").write_text(PROVE)
    lines = cli("test", "prove.yaml", "--json").lines
    shown = cli("test", "prove.yaml")

    assert {line["test"]: line["passed"] for line in lines} == {
        "property looser.yaml": True,
        "two at most": False,
        "no looser than looser.yaml": True,
        "reach pay(amount=5)": True,
        "unreachable pay": True,
        "unreachable approve": False,
    }
    assert shown.code == 1
    assert "FAILED unreachable approve\n" in shown.out
    assert "   1. approve()\n" in shown.out
    assert shown.out.endswith("4 passed, 2 failed\n")


@pytest.mark.parametrize(("block", "words"), [
    ("{name: nothing}", "a question has one of"),
    ("{reach: pay, unreachable: pay}", "this has 2"),
    ('{reach: pay, tools: ["p*"]}', "`p*` is a pattern: name each tool, or leave `tools` out"),
    ("{reach: 'pay(amount=lots)'}", "a value is JSON"),
    ("{property: missing.yaml}", "missing.yaml"),
    ("{property: {rules: [{type: count, tool: pay, mx: 2}]}}", "bad.yaml:3:50: error: unknown key `mx`"),
    ("{reachable: pay}", "unknown key `reachable`"),
])  # fmt: skip
def test_a_bad_prove_block_is_one_message(cli: Any, proved: Any, place: Path, block: str, words: str) -> None:
    """Exit code 2, with the position if it is known."""
    place.joinpath("bad.yaml").write_text(f"policies: [payments.yaml]\nprove:\n  - {block}\n")
    answer = cli("test", "bad.yaml")

    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


MANY = "name: many\non_violation: deny\nrules:\n" + "".join(
    f"  - {{type: count, tool: t{n}, max: 20}}\n" for n in range(8)
)
SLOW = "name: slow\nrules: [{type: count, tool: 't?', max: 170}]\n"


def test_a_long_search_says_so_and_ctrl_c_prints_what_is_known(place: Path) -> None:
    """On a terminal, after a second. The question is then `unknown`, exit code 3."""
    place.joinpath("slow.yaml").write_text(SLOW)
    place.joinpath("many.yaml").write_text(MANY)
    words = ("prove", "many.yaml", "--property", "slow.yaml", "--tools", ",".join(f"t{n}" for n in range(8)))
    command = [sys.executable, "-m", "proctor", *words, "--json"]
    terminal, its_end = pty.openpty()
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=its_end, text=True) as process:
        os.close(its_end)
        seen = b""
        while b"searching" not in seen:
            seen += os.read(terminal, 1024)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(terminal)

    assert process.returncode == 3
    assert json.loads(out)["verdict"] == "unknown"


def test_differences_of_two_policies_are_shown_one_session_each(cli: Any, proved: Any) -> None:
    """The direction, the rule, and both decisions on the last call; all in 80 columns."""
    found = cli("diff", "looser.yaml", "stricter.yaml", "--prove", "--json")
    shown = cli("diff", "looser.yaml", "stricter.yaml", "--prove")
    [line] = found.lines

    assert found.code == shown.code == 1
    assert (line["change"], line["rules"], len(line["session"])) == ("newly_refused", ["two"], 4)
    assert (line["old"]["action"], line["new"]["action"]) == ("allow", "deny")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "newly refused  `two`\n   1. approve()\n" in shown.out
    assert shown.out.endswith("1 difference\n")


def test_policies_that_decide_alike_do_not_differ(cli: Any, place: Path) -> None:
    """In any spelling. An additional budget may deny."""
    place.joinpath("old.yaml").write_text(PAYMENTS)
    place.joinpath("same.yaml").write_text(f"{PAYMENTS}  - {{id: four, type: count, tool: pay, max: 4}}\n")
    place.joinpath("budget.yaml").write_text(
        f"{PAYMENTS}budgets: [{{name: month, max_cost_usd: 5, window: month}}]\n"
    )
    same = cli("diff", "old.yaml", "same.yaml", "--prove")
    budget = cli("diff", "old.yaml", "budget.yaml", "--prove")

    assert (same.code, same.out) == (0, "both decide alike in every session\n")
    assert budget.code == 1
    assert "newly refused  `budgets`\n      other runs have used up the budget `payments/month`\n" in budget.out


@pytest.mark.parametrize(("arguments", "words"), [
    (("--prove", "trace.jsonl"), "leave out the recorded ones"),
    (("--prove", "--format", "claude"), "leave out the recorded ones"),
    ((), "give recorded sessions"),
])  # fmt: skip
def test_a_proof_of_differences_takes_no_traces(
    proved: Any, cli: Any, arguments: tuple[str, ...], words: str
) -> None:
    """Without `--prove`, traces are required."""
    answer = cli("diff", "payments.yaml", "stricter.yaml", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err

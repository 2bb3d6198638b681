"""`prove`: questions about every session, answered by a proof or by a session that shows otherwise."""

from __future__ import annotations

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

Cli = Any
CODING_AGENT = Path(__file__).parents[2] / "examples" / "coding_agent" / "policy.yaml"
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
def proved(cli: Cli, place: Path) -> Any:
    """`proctor prove payments.yaml` with other policies beside it."""
    for name, text in {"payments": PAYMENTS, "stricter": STRICTER, "looser": LOOSER}.items():
        place.joinpath(f"{name}.yaml").write_text(text)
    return lambda *arguments: cli("prove", "payments.yaml", *arguments)


@pytest.mark.parametrize(
    ("question", "code", "verdict"),
    [
        (("--property", "looser.yaml"), 0, "proved"),
        (("--property", "stricter.yaml"), 1, "refuted"),
        (("--no-looser-than", "looser.yaml"), 0, "proved"),
        (("--no-looser-than", "looser.yaml", "--no-looser-than", "stricter.yaml"), 1, "refuted"),
        (("--same-as", "payments.yaml"), 0, "proved"),
        (("--same-as", "looser.yaml"), 1, "refuted"),
        (("--reach", "pay(amount=5)"), 1, "refuted"),
        (("--reach", "pay", "--tools", "pay"), 0, "proved"),
    ],
)
def test_a_question_has_an_answer_and_an_exit_code(
    proved: Any, question: tuple[str, ...], code: int, verdict: str
) -> None:
    """0 proved, 1 refuted with a session whose last call is the one in question."""
    answer = proved(*question, "--json")
    (line,) = answer.lines

    assert (answer.code, line["verdict"]) == (code, verdict)
    assert set(line) == {"question", "verdict", "session", "explored", "reason"}
    assert bool(line["session"]) is (verdict == "refuted")
    assert all({"tool", "input", "decision", "outcome"} <= set(call) for call in line["session"])


def test_a_session_reads_well_in_80_columns(proved: Any) -> None:
    """Calls with inputs, each with its decision; the last is the one in question."""
    long = "x" * 200
    answer = proved("--reach", f'pay(amount>5000, to="{long}")')

    assert answer.code == 1
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "   1. approve()\n        allow, completed\n   2. pay(" in answer.out
    assert answer.out.startswith("refuted  reach pay(")


def test_several_questions_are_answered_each_on_a_line(proved: Any) -> None:
    """In the order of the options; the exit code is of the worst."""
    answer = proved("--no-looser-than", "looser.yaml", "--reach", "pay", "--reach", "approve(x=1)", "--json")

    assert [line["question"] for line in answer.lines] == [
        "no looser than looser.yaml",
        "reach pay",
        "reach approve(x=1)",
    ]
    assert answer.code == 1


def test_a_counterexample_becomes_a_test_that_fails_until_the_policy_is_mended(
    cli: Cli, proved: Any, place: Path
) -> None:
    """The test names the policy's file from where it stands."""
    place.joinpath("tests").mkdir()
    proved("--property", "stricter.yaml", "--write-test", "tests/found.yaml")
    before = cli("test", "tests/found.yaml")
    place.joinpath("payments.yaml").write_text(STRICTER)
    after = cli("test", "tests/found.yaml")

    assert (before.code, after.code) == (1, 0)


def test_a_counterexample_becomes_a_recorded_session(cli: Cli, proved: Any) -> None:
    """The policy lets it through, and the property does not."""
    proved("--property", "stricter.yaml", "--write-session", "found.jsonl")

    assert cli("eval", "--policy", "payments.yaml", "found.jsonl").code == 0
    assert cli("eval", "--policy", "stricter.yaml", "found.jsonl").code == 1


def test_nothing_is_written_where_nothing_is_refuted(proved: Any, place: Path) -> None:
    """It says so, and the exit code stays."""
    answer = proved("--same-as", "payments.yaml", "--write-test", "found.yaml")

    assert (answer.code, place.joinpath("found.yaml").exists()) == (0, False)
    assert "nothing is refuted" in answer.err


def test_without_a_question_rules_that_do_nothing_are_found(cli: Cli, place: Path) -> None:
    """Subsumed by a stricter one, about a call that cannot come, against itself."""
    place.joinpath("odd.yaml").write_text("""\
name: odd
on_violation: deny
tool_rules:
  - {id: no-drop, deny: [drop]}
rules:
  - {id: few, type: count, tool: pay, max: 2}
  - {id: more, type: count, tool: pay, max: 5}
  - {id: after-drop, type: never_after, trigger: drop, forbidden: report}
  - {id: itself, type: before, first: deploy, then: deploy}
""")
    answer = cli("prove", "odd.yaml", "--json")
    reasons = {line["question"]: line["reason"] for line in answer.lines if line["verdict"] == "refuted"}

    assert answer.code == 1
    assert reasons == {
        "rule more": "subsumed: `few` already stops all that `more` stops",
        "rule after-drop": "vacuous: no session comes to `drop`",
        "callable deploy": "never callable: `itself` always denies it",
    }
    assert cli("prove", "odd.yaml").out.endswith("9 checked: 6 fine, 3 found, 0 unknown\n")


def test_the_tools_of_an_agent_are_known_by_their_portable_names(cli: Cli, place: Path) -> None:
    """Of Claude Code `Bash` is `bash`."""
    place.joinpath("no-shell.yaml").write_text("name: no-shell\non_violation: deny\ntool_rules: [{deny: [bash]}]\n")
    answer = cli("prove", "no-shell.yaml", "--reach", "Bash", "--adapter", "claude")

    assert answer.code == 0, answer.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--reach", "pay(amount=lots)"), "a value is JSON"),
        (("--reach", "pay(amount)"), "an argument is `NAME=VALUE`"),
        (("--reach", "pay(a=1 b=2)"), "separated by commas"),
        (("--reach", "(x=1)"), "it is a tool's name"),
        (("--property", "missing.yaml"), "missing.yaml"),
        (("--tools", ","), "names no tool"),
        (("--adapter", "nobody"), "the tools of `nobody` are not known"),
        (("--tools", "a", "--adapter", "claude"), "choose one"),
        (("--write-test", "x.yaml"), "without a question"),
    ],
)
def test_bad_input_is_one_message(proved: Any, arguments: tuple[str, ...], words: str) -> None:
    """Exit code 2, and what to do."""
    answer = proved(*arguments)

    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


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


def test_test_files_prove_as_well(cli: Cli, proved: Any, place: Path) -> None:
    """Each `prove` is a test, which is called as its question where it has no name; a session shows why one fails."""
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


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{name: nothing}", "it has one of"),
        ("{reach: pay, unreachable: pay}", "here are 2"),
        ("{reach: 'pay(amount=lots)'}", "a value is JSON"),
        ("{property: missing.yaml}", "missing.yaml"),
        ("{property: {rules: [{type: count, tool: pay, mx: 2}]}}", "mx"),
        ("{reachable: pay}", "unknown key `reachable`"),
    ],
)
def test_a_bad_prove_block_is_one_message(cli: Cli, proved: Any, place: Path, block: str, words: str) -> None:
    """Exit code 2, with the place where it can be known."""
    place.joinpath("bad.yaml").write_text(f"policies: [payments.yaml]\nprove:\n  - {block}\n")
    answer = cli("test", "bad.yaml")

    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


SLOW = "name: slow\ntool_rules: [{deny: [{tool: write, where: [{not: [{path: $.path, within: .}]}]}]}]\n"


def test_a_long_search_says_so_and_ctrl_c_gives_what_is_known(place: Path) -> None:
    """On a terminal, after a second; then the question is `unknown`, exit code 3."""
    place.joinpath("slow.yaml").write_text(SLOW)
    terminal, its_end = pty.openpty()
    command = [sys.executable, "-m", "proctor", "prove", str(CODING_AGENT), "--property", "slow.yaml", "--json"]
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

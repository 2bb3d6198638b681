"""The sources of the evidence pages: the replay at a gate, the example policies, and the pages' own tables."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import evidence, policies
from benchmarks.__main__ import PAGE
from benchmarks.figures import ratios, with_tables
from proctor.adapters.cli import main
from proctor.adapters.traces import TraceSession, read_sessions

FOLDER = os.environ.get(evidence.SESSIONS)
ATTACKER = "US133000000121212121212"
HISTORY = "- amount: 50.0\n  id: 3\n  recipient: SE35\n  sender: me\n"


@pytest.fixture
def recorded(tmp_path: Path) -> Any:
    """Creates a session of calls, each with its input and its result, after the user's message."""

    def made(user_text: str, *calls: tuple[str, dict[str, Any], str], **task: Any) -> TraceSession:
        events: list[dict[str, Any]] = [{"type": "message", "role": "user", "text": user_text, "turn": 0}]
        for n, (name, arguments, content) in enumerate(calls):
            events.append({"type": "tool_call", "id": f"c{n}", "name": name, "arguments": arguments, "turn": n + 1})
            events.append({"type": "tool_result", "id": f"c{n}", "content": content, "turn": n + 1})
        file = tmp_path / "sessions.jsonl"
        file.write_text(json.dumps({"id": "s", "source": "x", "model": "m", "task": task, "events": events}) + "\n")
        return next(iter(read_sessions([str(file)])))

    return made


def _pay(recipient: str) -> tuple[str, dict[str, Any], str]:
    return ("send_money", {"recipient": recipient, "amount": 1, "subject": "x"}, "sent")


def test_the_result_of_a_call_that_never_ran_is_no_evidence(recorded: Any) -> None:
    """The first list of transactions comes from a denied tool, the second from an allowed one."""
    denied = recorded("Pay.", ("list_transactions", {}, HISTORY), _pay("SE35"))
    allowed = recorded("Pay.", ("get_most_recent_transactions", {}, HISTORY), _pay("SE35"))
    compiled = policies.policy("banking")

    assert [each.action for each in policies.replay(compiled, denied)] == ["deny", "request_approval"]
    assert [each.action for each in policies.replay(compiled, allowed)] == ["allow", "allow"]


def test_an_attack_is_prevented_if_all_its_calls_are(recorded: Any) -> None:
    """One of two is not enough."""
    session = recorded(
        "Pay GB29.", _pay(ATTACKER), _pay("GB29"), suite="banking", injection_task_id="injection_task_0"
    )
    compiled = policies.policy("banking")

    assert policies.attack_calls(session) == {"c0"}
    assert policies.became(compiled, session, {"c0"}) == ("prevented", [1], True)
    assert policies.became(compiled, session, {"c0", "c1"}) == ("in part", [1], True)
    assert policies.became(compiled, session, {"c1"}) == ("through", [], False)


@pytest.mark.parametrize("suite", policies.REWRITINGS)
def test_a_rewritten_attack_is_another_session(suite: str, recorded: Any) -> None:
    """Each rewriting changes the calls of the attack, and no others."""
    calls = {"banking": [_pay(ATTACKER)], "slack": [
        ("post_webpage", {"url": "www.a.com", "content": "x"}, ""),
        ("send_direct_message", {"recipient": "Alice", "body": "see www.a.com"}, ""),
    ]}[suite]  # fmt: skip
    session = recorded("Go on.", *calls)

    for rewriting in policies.REWRITINGS[suite].values():
        assert policies.rewritten(session, {"c0", "c1"}, rewriting).events != session.events
        assert policies.rewritten(session, set(), rewriting).events == session.events


@pytest.mark.parametrize("suite", policies.ATTACKED)
def test_the_results_of_the_adaptive_attacks_are_as_documented(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`proctor test` agrees, for those that are stopped and those that get through."""
    with pytest.raises(SystemExit) as raised:
        main(["test", str(policies.EXAMPLES / f"{suite}.test.yaml")])

    assert raised.value.code == 0, capsys.readouterr().out


@pytest.mark.parametrize("suite", [*policies.ATTACKED, *policies.RULED])
def test_an_example_loads_without_an_error(suite: str) -> None:
    """As a user would copy it."""
    with pytest.raises(SystemExit) as raised:
        main(["check", str(policies.EXAMPLES / f"{suite}.yaml")])

    assert raised.value.code == 0


def test_the_table_of_adaptive_attacks_is_that_of_the_files() -> None:
    """The page is regenerated when one of their tests changes."""
    page = evidence.PROGRAMS["policies"].page.read_text()

    assert with_tables(page, {"by hand": policies.by_hand()}) == page


def test_the_tables_of_recorded_sessions_are_the_measured_ones() -> None:
    """All of them, from the sessions."""
    if FOLDER is None:
        pytest.skip(
            f"needs the recorded sessions that docs/evidence/policies.md names, their folder in {evidence.SESSIONS}"
        )
    page = evidence.PROGRAMS["policies"].page.read_text()

    assert with_tables(page, policies.measured(Path(FOLDER))) == page


def test_the_ratios_are_those_of_the_page_of_benchmarks() -> None:
    """Collected again whenever a benchmark was measured."""
    page = evidence.PROGRAMS["ratios"].page.read_text()

    assert with_tables(page, {"ratios": ratios(PAGE.read_text())}) == page

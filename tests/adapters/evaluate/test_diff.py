"""Comparing two policies on the same sessions."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from proctor.adapters.evaluate import (
    DiffSummary,
    SessionChange,
    compare_sessions,
    diff_table,
    failure_reports,
    judge_session,
)

from .conftest import Compile, MakeSession


def block(tool: str, action: str = "deny") -> dict[str, Any]:
    return {"type": "blocklist", "id": f"no-{tool}", "tools": [tool], "action": action}


@pytest.mark.parametrize(("old", "new", "changes"), [
    ([], [block("bash")], ["newly_refused"]),
    ([block("bash")], [], ["newly_allowed"]),
    ([block("bash", "warn")], [block("bash")], ["newly_refused"]),
    ([block("bash")], [block("bash", "cancel")], ["other_action"]),
    ([block("bash")], [{**block("bash"), "id": "renamed"}], ["other_rules"]),
    ([block("bash")], [block("bash")], []),
    ([block("bash")], [block("bash"), block("mail")], []),
])  # fmt: skip
def test_calls_decided_differently_are_named_with_the_difference(
    make_session: MakeSession, policy: Compile, old: list[Any], new: list[Any], changes: list[str]
) -> None:
    """Denied or allowed is the main difference. A change of the action differs from a change of the rule."""
    (found,) = compare_sessions(policy(*old), policy(*new), [make_session("read", "bash")])

    assert [call.change for call in found.calls] == changes
    assert [call.tool_call_id for call in found.calls] == ["c1"] * len(changes)
    assert found.differs is bool(changes)


@pytest.mark.parametrize(("old", "new", "passed"), [
    ("warn", "deny", (True, False)),
    ("request_approval", "cancel", (True, False)),
    ("deny", "warn", (False, True)),
    ("warn", "request_approval", (True, True)),
])  # fmt: skip
def test_a_session_passes_under_a_policy_as_it_does_in_eval(
    make_session: MakeSession, policy: Compile, old: str, new: str, passed: tuple[bool, bool]
) -> None:
    """A warning fails no session, so that a rule that denies after it warned is found to."""
    rules = policy(block("bash", old)), policy(block("bash", new))
    (found,) = compare_sessions(*rules, [make_session("bash")])

    assert (found.old_passed, found.new_passed) == passed


@pytest.mark.parametrize(("kind", "between"), [
    ("tool_call_started", {"type": "tool_call_completed", "tool_call_id": "c"}),
    ("tool_call_started", {"type": "run_started"}),
    ("tool_call_requested", {"type": "tool_call_denied", "tool_call_id": "c"}),
])  # fmt: skip
def test_a_reused_id_is_another_call(
    make_session: MakeSession, policy: Compile, kind: str, between: dict[str, Any]
) -> None:
    """Each call is compared with itself, although both policies deny the later one."""
    first, later = ({"type": kind, "tool_call_id": "c", "tool_name": tool} for tool in ("bash", "mail"))
    session = make_session(first, between, later)
    old, new = policy(block("bash"), block("mail")), policy(block("mail"))
    (found,) = compare_sessions(old, new, [session])

    assert [(call.tool_name, call.change) for call in found.calls] == [("bash", "newly_allowed")]
    (report,) = failure_reports(session, judge_session(new, session))
    assert "call 2 of 2" in report.plain


def test_findings_at_the_end_are_compared_too(make_session: MakeSession, policy: Compile) -> None:
    """They belong to no call."""
    new = policy({"type": "require", "id": "r", "tool": "verify", "action": "deny"})

    (found,) = compare_sessions(policy(), new, [make_session("read")])

    (change,) = found.calls
    assert (change.tool_call_id, change.call, change.change) == (None, "the session as a whole", "newly_refused")
    assert (found.old_passed, found.new_passed) == (True, False)


@pytest.fixture
def changes(make_session: MakeSession, policy: Compile) -> list[SessionChange]:
    """Two sessions, one of which is decided differently in two calls."""
    sessions = [make_session("read", id="calm"), make_session("bash", "mail", id="wild")]
    return list(compare_sessions(policy(block("mail")), policy(block("bash")), sessions))


def test_differences_are_readable_at_80_columns(changes: list[SessionChange]) -> None:
    """Below their session, with both decisions."""
    summary = DiffSummary()
    for change in changes:
        summary.add(change)
    console = Console(file=io.StringIO(), width=80)
    console.print(diff_table(summary))
    text = console.file.getvalue()  # type: ignore[attr-defined]

    assert text.startswith("wild\n")
    assert "  newly refused   bash()\n    was allow; would be deny: no-bash\n" in text
    assert "  newly allowed   mail()\n    was deny: no-mail; would be allow\n" in text
    assert "sessions: 2, decided differently 1, now failing 0, now passing 0" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_line_of_json_has_both_decisions(changes: list[SessionChange]) -> None:
    """One line a session, also without a difference."""
    calm, wild = (msgspec.json.decode(msgspec.json.encode(change)) for change in changes)

    assert (calm["session"], calm["calls"]) == ("calm", [])
    assert wild["calls"][0] == {
        "change": "newly_refused",
        "tool_call_id": "c0",
        "tool_name": "bash",
        "call": "bash()",
        "old": {"action": "allow", "rules": []},
        "new": {"action": "deny", "rules": ["no-bash"]},
    }

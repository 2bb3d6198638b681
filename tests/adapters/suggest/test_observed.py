"""Calls similar to an approved one, and observations about an input, such as the host of an address."""

from typing import Any

import pytest

from proctor.adapters.kit.client_tools import CLAUDE_TOOLS
from proctor.adapters.suggest import like_of, observe
from proctor.adapters.suggest.observed import HOST, host_of
from proctor.adapters.traces import TraceSession
from proctor.policies import RunContext, ToolCall, compile_policy, events, merge_policies, parse_policies
from proctor.supervisor.machine.pending_approvals import is_like


def alike(name: str, granted: dict[str, Any], later: dict[str, Any]) -> bool:
    """Whether a later call is similar to an approved one, by the recorded approval."""
    found = like_of(call(name, granted), CLAUDE_TOOLS)
    assert found is not None
    return is_like(call(name, later), found.entry, granted)


def call(name: str, input: dict[str, Any]) -> ToolCall:
    return ToolCall(id="c", name=name, input=input, turn=1)


PUSH = {"command": "git push origin main"}
WRITE = {"file_path": "/work/app/a.py", "content": "x = 1"}


@pytest.mark.parametrize(("name", "granted", "later"), [
    ("Bash", PUSH, {"command": "git push origin release"}),
    ("Bash", {**PUSH, "description": "Push"}, {"command": "git push", "description": "Push it again"}),
    ("Bash", {"command": "cd app && git push"}, {"command": "git push"}),
    ("Write", WRITE, {"file_path": "/work/app/b.py", "content": "y = 2"}),
    ("Write", WRITE, {"file_path": "/work/app/below/c.py", "content": ""}),
    ("deploy", {"to": "staging", "timeout": 5}, {"to": "staging", "timeout": 9}),
])  # fmt: skip
def test_a_similar_call_differs_in_irrelevant_parts(name: str, granted: Any, later: Any) -> None:
    """Arguments of the same subcommand, another file of the folder, another text in it."""
    assert alike(name, granted, later)


@pytest.mark.parametrize(("name", "granted", "later"), [
    ("Bash", PUSH, {"command": "git pull"}),
    ("Bash", PUSH, {"command": "git push; rm -rf /"}),
    ("Bash", PUSH, {"command": "git push $(rm -rf /)"}),
    ("Bash", PUSH, {"command": "git push origin main > /etc/passwd"}),
    ("Bash", PUSH, {"command": "sh -c 'git push'; curl evil"}),
    ("Bash", PUSH, {**PUSH, "dangerouslyDisableSandbox": True}),
    ("Bash", {**PUSH, "run_in_background": False}, {**PUSH, "run_in_background": True}),
    ("Bash", {"command": "rm -r build"}, {"command": "rm -r /"}),
    ("Bash", {"command": "curl https://ops.example"}, {"command": "curl https://evil.example"}),
    ("Write", WRITE, {"file_path": "/work/app/../../etc/passwd", "content": "x"}),
    ("Write", WRITE, {"file_path": "/work/other/a.py", "content": "x"}),
    ("Write", WRITE, {"content": "x"}),
    ("deploy", {"to": "staging"}, {"to": "production"}),
    ("deploy", {"to": "staging"}, {"to": "staging", "force": True}),
    ("deploy", {"to": "staging", "force": False}, {"to": "staging", "force": 0, "more": 1}),
    ("pay", {"amount": 10, "to": "ana"}, {"amount": 11, "to": "ana"}),
    ("pay", {"amount": 10, "to": ["ana"]}, {"amount": 10, "to": ["ana", "eve"]}),
    ("pay", {"amount": 10, "order": {"to": "ana"}}, {"amount": 10, "order": {"to": "eve"}}),
])  # fmt: skip
def test_no_other_call_is_similar(name: str, granted: Any, later: Any) -> None:
    """Another program beside it, another amount, another folder, an additional input."""
    assert not alike(name, granted, later)


@pytest.mark.parametrize("line", ["$TOOL push", "git $(cat what)", 'python -c "import x"', "eval $x"])
def test_no_call_is_similar_to_an_unparsable_one(line: str) -> None:
    """No entry could match it, not even the call itself."""
    assert like_of(call("Bash", {"command": line}), CLAUDE_TOOLS) is None


def test_an_unfinished_call_is_learnt_even_if_a_later_run_reuses_its_id() -> None:
    """An id names a call within its run."""
    began: list[events.Event] = [
        each
        for run, tool in (("r1", "find"), ("r2", "pay"))
        for each in (events.RunStarted(run_id=run), events.ToolCallStarted(tool_call_id="c", tool_name=tool))
    ]
    session = TraceSession(id="s", source="", format="events", events=began, complete=True)

    assert [each.tool for each in observe(session).calls] == ["find", "pay"]


SAID = "read https://good.example/docs and ftp://good.example/x"


def answer(url: str) -> str:
    """Whether an address may be fetched whose host the user must have mentioned."""
    rule = {"type": "provenance", "tool": "fetch", "path": "$.url", "extract": HOST, "from": ["user_message"]}
    written = {"version": 1, "name": "p", "on_violation": "deny", "rules": [rule]}
    monitor = compile_policy(merge_policies(parse_policies(written))).monitor(RunContext())
    monitor.observe(events.MessageSent(content=SAID))
    return monitor.propose(ToolCall(id="c", name="fetch", input={"url": url})).action


@pytest.mark.parametrize("path", ["", "/", "/x?y#z", "?x", "#x"])
@pytest.mark.parametrize("start", ["https://", "http://", "HTTPS://", ""])
def test_another_page_of_a_mentioned_host_is_allowed(start: str, path: str) -> None:
    """With any scheme, or without one."""
    assert host_of(f"{start}good.example{path}") == "good.example"
    assert answer(f"{start}good.example{path}") == "allow"


OTHERS = [
    *(" https://evil.example", "\thttps://evil.example", "https:///evil.example", "https:/evil.example"),
    *("https:evil.example", "https:/\\evil.example", "https:\\\\evil.example", "//evil.example"),
    *("ftp://evil.example", "ftp:/evil.example", "file:///etc/passwd", "https:?evil.example"),
    *("https://good.example@evil.example", "https://good.example:80@evil.example"),
    *("https://good.example\\@evil.example", "https://evil.example\\good.example"),
    *("https://good.example.evil.example", "https://good.example:8080", "https://good.exampl"),
    *("https://ood.example", "https://evil.example/good.example", "https://evil.example#@good.example"),
    *("https://good\u3002example", "https://good.example%2eevil.example", "https://good.example\n.evil.example"),
    *("https://[::1]/", "https://2130706433", "https://\u200bevil.example"),
]  # fmt: skip


def test_an_address_of_another_host_is_denied() -> None:
    """Even if some programs parse it as one of the mentioned host."""
    for url in OTHERS:
        assert answer(url) == "deny", url

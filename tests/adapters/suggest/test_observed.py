"""What is like a call, and what is observed of an input: the host of an address."""

from typing import Any

import pytest

from proctor.adapters.kit.client_tools import CLAUDE_TOOLS
from proctor.adapters.suggest import like_of, observe
from proctor.adapters.suggest.observed import HOST, host_of
from proctor.adapters.traces import TraceSession
from proctor.policies import RunContext, ToolCall, compile_policy, events, merge_policies, parse_policies
from proctor.supervisor.machine.pending_approvals import is_like


def alike(name: str, granted: dict[str, Any], later: dict[str, Any]) -> bool:
    """Whether a later call is like one that was granted, by what is recorded of the grant."""
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
def test_its_like_differs_in_what_does_not_matter(name: str, granted: Any, later: Any) -> None:
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
def test_nothing_else_is_like_it(name: str, granted: Any, later: Any) -> None:
    """Another program beside it, another amount, another folder, one input more."""
    assert not alike(name, granted, later)


@pytest.mark.parametrize("line", ["$TOOL push", "git $(cat what)", 'python -c "import x"', "eval $x"])
def test_what_cannot_be_read_is_like_nothing(line: str) -> None:
    """There is no entry to offer: it would admit nothing, not even the call itself."""
    assert like_of(call("Bash", {"command": line}), CLAUDE_TOOLS) is None


def test_a_call_that_its_run_left_open_is_learnt_though_a_later_run_uses_its_id() -> None:
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
    """Whether an address may be fetched, of which the user has to have said the host."""
    rule = {"type": "provenance", "tool": "fetch", "path": "$.url", "extract": HOST, "from": ["user_message"]}
    written = {"version": 1, "name": "p", "on_violation": "deny", "rules": [rule]}
    monitor = compile_policy(merge_policies(parse_policies(written))).monitor(RunContext())
    monitor.observe(events.MessageSent(content=SAID))
    return monitor.propose(ToolCall(id="c", name="fetch", input={"url": url})).action


@pytest.mark.parametrize("path", ["", "/", "/x?y#z", "?x", "#x"])
@pytest.mark.parametrize("start", ["https://", "http://", "HTTPS://", ""])
def test_another_page_of_a_host_that_was_said_passes(start: str, path: str) -> None:
    """With the scheme of either, or without one."""
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


def test_an_address_of_another_host_does_not_pass() -> None:
    """Also where some programs read it as an address of the host that was said, and others do not."""
    for url in OTHERS:
        assert answer(url) == "deny", url

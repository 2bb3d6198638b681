"""What is observed of an input: the host of an address."""

from __future__ import annotations

import pytest

from proctor.adapters.suggest.observed import HOST, host_of
from proctor.policies import RunContext, ToolCall, compile_policy, events, merge_policies, parse_policies

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


@pytest.mark.parametrize(
    "url",
    [
        *(" https://evil.example", "\thttps://evil.example", "https:///evil.example", "https:/evil.example"),
        *("https:evil.example", "https:/\\evil.example", "https:\\\\evil.example", "//evil.example"),
        *("ftp://evil.example", "ftp:/evil.example", "file:///etc/passwd", "https:?evil.example"),
        *("https://good.example@evil.example", "https://good.example:80@evil.example"),
        *("https://good.example\\@evil.example", "https://evil.example\\good.example"),
        *("https://good.example.evil.example", "https://good.example:8080", "https://good.exampl"),
        *("https://ood.example", "https://evil.example/good.example", "https://evil.example#@good.example"),
        *("https://good\u3002example", "https://good.example%2eevil.example", "https://good.example\n.evil.example"),
        *("https://[::1]/", "https://2130706433", "https://\u200bevil.example"),
    ],
)
def test_an_address_of_another_host_does_not_pass(url: str) -> None:
    """Also where some programs read it as an address of the host that was said, and others do not."""
    assert answer(url) == "deny"

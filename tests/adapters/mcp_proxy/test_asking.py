"""Real servers that ask their clients through the proxy, and what their tools are called in a policy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.types import CreateMessageResult, ElicitResult, ErrorData, TextContent

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
COMMAND = [sys.executable, str(Path(__file__).with_name("asking_server.py"))]
OPEN = "{name: p, on_violation: deny, tool_rules: []}"


class Person:
    """Answers what a server asks, when `may` is set."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.may = anyio.Event()
        self.may.set()

    async def completes(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        self.questions.append(params.messages[0].content.text)
        await self.may.wait()
        content = TextContent(type="text", text="yes")
        return CreateMessageResult(role="assistant", content=content, model="m")

    async def answers(self, context: Any, params: Any) -> ElicitResult:
        self.questions.append(params.message)
        await self.may.wait()
        return ElicitResult(action="accept", content={"name": "Ana"})

    @property
    def callbacks(self) -> dict[str, Callable[..., Any]]:
        return {"sampling_callback": self.completes, "elicitation_callback": self.answers}


async def test_a_tool_that_asks_its_client_gets_the_answer(bench: Any) -> None:
    """While its call is under way; what was asked is no call, and the call's output is recorded."""
    person = Person()
    async with bench.proxied(OPEN, command=COMMAND, callbacks=person.callbacks) as proxied:
        answers = [await proxied.outcome("complete", text="go on"), await proxied.outcome("ask", question="who?")]
        outputs = [event.tool_output for event in await proxied.events("tool_call_completed")]
        requested = await proxied.events("tool_call_requested")

    assert answers == [(False, "the model said yes"), (False, "accept Ana")]
    assert person.questions == ["go on", "who?"]
    assert [answer in str(output) for (_, answer), output in zip(answers, outputs, strict=True)] == [True, True]
    assert len(requested) == 2


async def test_a_denied_tool_asks_nobody(bench: Any) -> None:
    """The server never hears of the call."""
    person = Person()
    denied = "{name: p, on_violation: deny, tool_rules: [{deny: [ask, complete]}]}"
    async with bench.proxied(denied, command=COMMAND, callbacks=person.callbacks) as proxied:
        answers = [await proxied.outcome("ask", question="who?"), await proxied.outcome("complete", text="x")]

    assert [is_error for is_error, _ in answers] == [True, True]
    assert person.questions == []


async def test_other_calls_are_judged_while_a_server_waits_for_its_answer(bench: Any) -> None:
    """Nothing is held up, and nothing slips by."""
    person = Person()
    person.may = anyio.Event()
    policy = "{name: p, on_violation: deny, tool_rules: [{deny: [bash]}]}"
    answers: list[tuple[bool, str]] = []
    async with bench.proxied(policy, command=COMMAND, callbacks=person.callbacks) as proxied:

        async def ask() -> None:
            answers.append(await proxied.outcome("ask", question="who?"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            answers.append(await proxied.outcome("bash", command="rm -rf /"))
            answers.append(await proxied.outcome("execute_command", command="ls"))
            person.may.set()

    assert [is_error for is_error, _ in answers] == [True, True, False]
    assert answers[-1] == (False, "accept Ana")


PORTABLE = """
name: p
on_violation: deny
tool_rules:
  - deny: [bash]
  - deny: [{tool: write, where: [{path: $.path, regex: ^/etc}]}]
"""

CALLS: list[tuple[str, dict[str, str]]] = [
    ("bash", {"command": "ls"}),
    ("execute_command", {"command": "ls"}),
    ("write_file", {"path": "/etc/passwd", "content": "x"}),
    ("write_file", {"path": "notes", "content": "x"}),
]


@pytest.mark.parametrize(
    ("server", "expected"), [(None, [True, True, True, False]), ("files", [False, False, False, False])]
)
async def test_a_portable_name_means_what_the_tools_of_a_server_without_a_name_are_mostly_called(
    bench: Any, server: str | None, expected: list[bool]
) -> None:
    """As it does on the functions of a framework. A named server's tools are those of no agent."""
    async with bench.proxied(PORTABLE, command=COMMAND, server=server) as proxied:
        refused = [(await proxied.outcome(tool, **given))[0] for tool, given in CALLS]
        names = [event.tool_name for event in await proxied.events("tool_call_requested")]

    assert refused == expected
    assert names == [f"mcp__{server}__{tool}" if server else tool for tool, _ in CALLS]


async def test_two_proxies_whose_servers_offer_one_tool_are_distinguished_by_the_servers_names(bench: Any) -> None:
    """One policy for both: what is denied of one is allowed of the other, and each has its own record."""
    policy = "{name: p, on_violation: deny, tool_rules: [{deny: [mcp__a__write_file]}]}"
    given = {"path": "x", "content": "y"}
    answers, names = [], []
    async with (
        bench.proxied(policy, command=COMMAND, server="a") as first,
        bench.proxied(policy, command=COMMAND, server="b") as second,
    ):
        for proxied in (first, second):
            answers.append((await proxied.outcome("write_file", **given))[0])
            names.append({e.tool_name for e in await proxied.events("tool_call_denied", "tool_call_completed")})

    assert answers == [True, False]
    assert names == [{"mcp__a__write_file"}, {"mcp__b__write_file"}]

"""Real servers that ask their clients through the proxy, and the names of their tools in policies."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.types import CreateMessageResult, ElicitResult, ErrorData, TextContent

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")]
COMMAND = [sys.executable, str(Path(__file__).with_name("server.py"))]


class Person:
    """Answers a server's requests, if `may` is set."""

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
    """While its call is active. The request is no call, and the call's output is recorded. Meanwhile other calls are
    evaluated; none is blocked or missed.
    """
    person = Person()
    policy = "{name: p, on_violation: deny, tool_rules: [{deny: [bash]}]}"
    held: list[tuple[bool, str]] = []
    async with bench.proxied(policy, command=COMMAND, callbacks=person.callbacks) as proxied:
        answers = [await proxied.outcome("complete", text="go on"), await proxied.outcome("ask", question="who?")]
        outputs = [event.tool_output for event in await proxied.events("tool_call_completed")]
        requested = await proxied.events("tool_call_requested")
        person.may = anyio.Event()

        async def ask() -> None:
            held.append(await proxied.outcome("ask", question="who?"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            held.append(await proxied.outcome("bash", command="rm -rf /"))
            held.append(await proxied.outcome("execute_command", command="ls"))
            person.may.set()

    assert answers == [(False, "the model said yes"), (False, "accept Ana")]
    assert person.questions == ["go on", "who?", "who?"]
    assert [answer in str(output) for (_, answer), output in zip(answers, outputs, strict=True)] == [True, True]
    assert len(requested) == 2
    assert [is_error for is_error, _ in held] == [True, True, False]
    assert held[-1] == (False, "accept Ana")


POLICY = """
name: p
on_violation: deny
tool_rules:
  - deny: [bash]
  - deny: [{tool: write, where: [{path: $.path, regex: ^/etc}]}]
  - deny: [mcp__a__write_file, mcp__a__ask, mcp__a__complete]
"""


CALLS: list[tuple[str, dict[str, str]]] = [
    ("bash", {"command": "ls"}),
    ("execute_command", {"command": "ls"}),
    ("write_file", {"path": "/etc/passwd", "content": "x"}),
    ("write_file", {"path": "notes", "content": "x"}),
]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_names_of_servers_tools_in_a_policy(bench: Any) -> None:
    """For a server without a name, a portable name means the usual tool names, as for a framework's functions; a
    named server's tools are no agent's. Two servers with the same tool differ by their names under one policy, and
    each has its own log. A denied tool never asks, as the server does not get the call.
    """
    person = Person()
    refused, names = {}, {}
    for server in (None, "a", "b"):
        async with bench.proxied(POLICY, command=COMMAND, server=server, callbacks=person.callbacks) as proxied:
            refused[server] = [(await proxied.outcome(tool, **given))[0] for tool, given in CALLS]
            names[server] = [event.tool_name for event in await proxied.events("tool_call_requested")]
            if server == "a":
                silent = [await proxied.outcome("ask", question="who?"), await proxied.outcome("complete", text="x")]

    assert refused == {
        None: [True, True, True, False],
        "a": [False, False, True, True],
        "b": [False, False, False, False],
    }
    assert names == {name: [f"mcp__{name}__{tool}" if name else tool for tool, _ in CALLS] for name in refused}
    assert [is_error for is_error, _ in silent] == [True, True]
    assert person.questions == []

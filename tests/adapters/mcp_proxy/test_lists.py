"""The proxy's lists: only tools that could be called now; everything else as the server sent it."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

pytestmark = pytest.mark.anyio
ALL = {"read", "write", "add", "fail", "crash", "babble", "hang"}


async def test_tools_that_could_not_be_called_are_not_listed(bench: Any) -> None:
    """Denied tools are omitted from all pages of the server's list."""
    async with bench.proxied("{name: p, tool_rules: [{deny: [write, babble]}]}") as proxied:
        first = await proxied.client.list_tools()
        second = await proxied.client.list_tools(cursor=first.next_cursor)

    shown = {tool.name for tool in [*first.tools, *second.tools]}
    assert shown == ALL - {"write", "babble"}


async def test_the_client_is_notified_when_the_list_changes(bench: Any) -> None:
    """When a rule disables a tool, and not for a call without this effect."""
    policy = "{name: p, on_violation: deny, rules: [{type: count, tool: add, max: 2}]}"
    async with bench.proxied(policy) as proxied:
        assert proxied.client.server_capabilities.tools.list_changed
        before = await proxied.tools()
        await proxied.call("add", a=1, b=1)
        await proxied.call("fail")
        early = list(proxied.notices)
        await proxied.call("add", a=1, b=1)
        await proxied.noticed.wait()
        after = await proxied.tools()

    assert early == []
    assert proxied.notices == ["notifications/tools/list_changed"]
    assert ("add" in before, "add" in after) == (True, False)


async def test_a_named_servers_tools_have_the_names_that_agents_use(bench: Any) -> None:
    """With a server name the policy sees `mcp__NAME__tool`; the agent and the server see the tool's own name."""
    policy = "{name: p, on_violation: deny, tool_rules: [{allow: ['mcp__files__a*', write]}]}"
    async with bench.proxied(policy, server="files") as proxied:
        shown = await proxied.tools()
        refused, _ = await proxied.outcome("write", path=str(bench.dir / "never"))
        allowed = await proxied.call("add", a=1, b=2)
        [started] = await proxied.events("tool_call_started")

    assert shown == ["add"]
    assert refused
    assert allowed.structured_content == {"sum": 3}
    assert started.tool_name == "mcp__files__add"


@pytest.mark.parametrize(("trusts", "rule", "offered"), [
    ("", "allow: [read-only]", []),
    ("metadata: {trusted_servers: [quick]},", "allow: [read-only]", ["read"]),
    ("metadata: {trusted_servers: [quick]},", "deny: [destructive, '*add']", ["read"]),
])  # fmt: skip
async def test_annotations_name_the_tools_of_a_trusted_server(
    bench: Any, trusts: str, rule: str, offered: list[str]
) -> None:
    """A tool without annotations is destructive. Without trust, `read-only` is an ordinary name that no tool has, so
    it allows nothing.
    """
    async with bench.proxied(
        f"{{name: p, on_violation: deny, {trusts} tool_rules: [{{{rule}}}]}}", server="quick"
    ) as proxied:
        assert await proxied.tools() == offered


async def test_tools_that_a_server_adds_later_are_not_trusted(bench: Any) -> None:
    """They have no annotation that the policy could use, so they are neither listed nor callable."""
    from proctor.adapters.mcp_proxy.tools import Visibility

    visibility = Visibility(list, {"read"})

    assert visibility.narrow(["read", "late"]) == ["read"]
    assert not visibility.knows("late")


async def test_a_change_between_two_pages_is_announced() -> None:
    """The client's first page is from before the change. A server that lists for ever is asked for each page once."""
    from proctor.adapters.mcp_proxy.tools import Naming, ToolList, Visibility

    closed: set[str] = set()
    looked: list[int] = []

    def narrow(names: Sequence[str]) -> list[str]:
        looked.append(len(names))
        return [name for name in names if name not in closed]

    visibility = Visibility(narrow)
    tools = ToolList(Naming(), visibility)
    tools.page({"tools": [{"name": "read"}, {"name": "write"}]}, first=True)
    closed.add("write")
    visibility.touch()
    last = tools.page({"tools": [{"name": "add"}]}, first=False)
    with anyio.move_on_after(1):
        await tools.changed(0)
        looked.append(0)

    assert [tool["name"] for tool in last["tools"]] == ["add"]
    assert looked == [2, 1, 3, 0]


async def test_everything_but_tools_passes_unchanged(bench: Any) -> None:
    """Resources, prompts and progress of a server written with the MCP library, although a policy allows no tool."""
    policy = "{name: p, tool_rules: [{allow: [count]}]}"
    steps: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        steps.append(done)

    async with bench.proxied(policy, command=bench.real_command) as proxied:
        shown = await proxied.tools()
        read = await proxied.client.read_resource("small://greeting")
        prompt = await proxied.client.get_prompt("ask", {"topic": "fish"})
        counted = await proxied.client.call_tool("count", {"to": 3}, progress_callback=on_progress)

    assert shown == ["count"]
    assert read.contents[0].text == "hello"
    assert prompt.messages[0].content.text == "tell me about fish"
    assert counted.structured_content == {"result": 3}
    assert steps == [1, 2, 3]


async def test_a_limit_that_cannot_be_counted_is_reported_beforehand(bench: Any) -> None:
    """MCP has no usage: the operator is warned of a cost limit, not of a call limit."""
    policy = "{name: org, limits: {max_cost_usd: 5, max_tool_calls: 9}}"
    async with bench.proxied(policy) as proxied:
        warnings = list(proxied.warnings)

    assert len(warnings) == 1
    assert "`org`: `max_cost_usd` cannot be held here" in warnings[0]

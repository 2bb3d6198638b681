"""An input that a client sends under another name is no input that is missing."""

from typing import Any

from proctor.adapters.hooks.clients import CLIENTS as HOOKS
from proctor.adapters.kit.client_tools import CLIENTS
from proctor.policies import ToolCall, compile_policy, parse_policies
from proctor.policies.events.run_context import PORTABLE, Tool, needed, optional, portable, recorded, root_of

TABLES: dict[str, tuple[Tool, ...]] = {**CLIENTS, **{f"hooks of {name}": HOOKS[name].tools for name in HOOKS}}
CASES = [
    (client, tool, name)
    for client, tools in TABLES.items()
    for tool in tools
    if not tool.inferred
    for act in tool.acts
    for name in optional(act)
    if name in tool.inputs
]


def given(tool: Tool, *names: str, **more: Any) -> dict[str, Any]:
    """A call's input with these portable inputs, where the client has them."""
    found: dict[str, Any] = {}
    for name in names:
        path = tool.inputs.get(name, (f"$.{name}",))[0]
        _, inside, leaf = path.partition("[*].")
        found[root_of(path)] = [{leaf: f"a {name}"}] if inside else [f"a {name}"] if "[*]" in path else f"a {name}"
    return {**found, **more}


def decided(rule: str, tools: tuple[Tool, ...], tool: Tool, input: dict[str, Any]) -> str:
    """What a policy of one rule decides of a call."""
    text = f"{{name: p, on_violation: deny, tool_rules: [{{{rule}}}]}}"
    monitor = compile_policy(parse_policies(text)[0], tools=tools).monitor()
    return str(monitor.propose(ToolCall(id="c", name=tool.name, input=input)).action)


def test_an_optional_input_under_another_name_meets_its_rule() -> None:
    """Of a call that lacks it and has an input that nobody knows: denied, and never allowed by it; replayed, too."""
    for client, tool, name in CASES:
        act = tool.acts[0]
        has = needed(act)
        denied = f"deny: [{{tool: {act}, where: [{{path: $.{name}, contains: etc}}]}}]"
        allowed = f"allow: [{{tool: {act}, where: [{{not: [{{path: $.{name}, contains: etc}}]}}]}}]"
        for tools in (TABLES[client], recorded(portable(TABLES[client]))):
            renamed = given(tool, *has, elsewhere="/etc")

            assert decided(denied, tools, tool, renamed) == "deny", (client, tool, name)
            assert decided(allowed, tools, tool, renamed) == "deny", (client, tool, name)
            assert decided(denied, tools, tool, given(tool, *has)) == "allow", (client, tool, name)
            assert decided(denied, tools, tool, given(tool, *has, name, elsewhere="/etc")) == "allow", (
                client,
                tool,
                name,
            )
            assert decided(denied, tools, tool, given(tool, *has, elsewhere=None)) == "allow", (client, tool, name)


def test_an_optional_input_whose_parts_are_renamed_meets_its_rule() -> None:
    """The input is there, what is looked for in it is not."""
    [tool] = [tool for tool in CLIENTS["claude"] if tool.name == "MultiEdit"]
    input = {"file_path": "x", "edits": [{"old_string": "a", "new_text": "etc"}]}
    denied = "deny: [{tool: edit, where: [{path: $.content, contains: etc}]}]"

    assert decided(denied, CLIENTS["claude"], tool, input) == "deny"
    assert decided(denied, CLIENTS["claude"], tool, {**input, "edits": []}) == "allow"


def test_what_a_client_is_known_to_take_is_no_other_input() -> None:
    """A new option of a tool would else deny its every call: the tables have those that the clients have today."""
    for client in TABLES:
        for tool in TABLES[client]:
            own = {name for act in tool.acts for name in PORTABLE.get(act, ())}
            if any(optional(act) for act in tool.acts) and not tool.inferred:
                bare = Tool(name=tool.name, acts=tool.acts, inputs=tool.inputs)

                assert bare.unknown_among({*tool.takes} - own) == frozenset(), client

"""An input that a client sends under an unknown name is not treated as missing."""

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


def call_input(tool: Tool, *names: str, **more: Any) -> dict[str, Any]:
    """A call's input with these portable inputs, as far as the client has them."""
    found: dict[str, Any] = {}
    for name in names:
        path = tool.inputs.get(name, (f"$.{name}",))[0]
        _, inside, leaf = path.partition("[*].")
        found[root_of(path)] = [{leaf: f"a {name}"}] if inside else [f"a {name}"] if "[*]" in path else f"a {name}"
    return {**found, **more}


def decided(rule: str, tools: tuple[Tool, ...], tool: Tool, input: dict[str, Any]) -> str:
    """The decision of a policy with one rule on a call."""
    text = f"{{name: p, on_violation: deny, tool_rules: [{{{rule}}}]}}"
    monitor = compile_policy(parse_policies(text)[0], tools=tools).monitor()
    return str(monitor.propose(ToolCall(id="c", name=tool.name, input=input)).action)


def test_a_rule_on_an_optional_input_applies_if_it_may_be_renamed() -> None:
    """The call lacks the input and has an unknown one: a deny matches, an allow does not; also from the log."""
    for client, tool, name in CASES:
        act = tool.acts[0]
        has = needed(act)
        denied = f"deny: [{{tool: {act}, where: [{{path: $.{name}, contains: etc}}]}}]"
        allowed = f"allow: [{{tool: {act}, where: [{{not: [{{path: $.{name}, contains: etc}}]}}]}}]"
        for tools in (TABLES[client], recorded(portable(TABLES[client]))):
            renamed = call_input(tool, *has, elsewhere="/etc")

            assert decided(denied, tools, tool, renamed) == "deny", (client, tool, name)
            assert decided(allowed, tools, tool, renamed) == "deny", (client, tool, name)
            assert decided(denied, tools, tool, call_input(tool, *has)) == "allow", (client, tool, name)
            assert decided(denied, tools, tool, call_input(tool, *has, name, elsewhere="/etc")) == "allow", (
                client,
                tool,
                name,
            )
            assert decided(denied, tools, tool, call_input(tool, *has, elsewhere=None)) == "allow", (
                client,
                tool,
                name,
            )


def test_a_rule_on_a_part_of_an_optional_input_applies_if_it_may_be_renamed() -> None:
    """The input is there; the part that the rule reads is not."""
    [tool] = [tool for tool in CLIENTS["claude"] if tool.name == "MultiEdit"]
    input = {"file_path": "x", "edits": [{"old_string": "a", "new_text": "etc"}]}
    denied = "deny: [{tool: edit, where: [{path: $.content, contains: etc}]}]"

    assert decided(denied, CLIENTS["claude"], tool, input) == "deny"
    assert decided(denied, CLIENTS["claude"], tool, {**input, "edits": []}) == "allow"


def test_inputs_that_a_client_is_known_to_have_are_not_renamed_ones() -> None:
    """Otherwise a tool's new option would deny its every call. The tables have the options of today's clients."""
    for client in TABLES:
        for tool in TABLES[client]:
            own = {name for act in tool.acts for name in PORTABLE.get(act, ())}
            if any(optional(act) for act in tool.acts) and not tool.inferred:
                bare = Tool(name=tool.name, acts=tool.acts, inputs=tool.inputs)

                assert bare.unknown_among({*tool.takes} - own) == frozenset(), client

"""Portable names and inputs: the same policy gives the same answers on the same acts of different clients."""

from typing import Any

import pytest

from proctor.policies import Monitor, RunContext, ToolCall, compile_policy, events, parse_policies
from proctor.policies.events.run_context import PORTABLE, Tool, tool

CLIENT = (
    tool("Shell", "bash", "timeout", command=("$.cmd", "$.script")),
    tool("Write", "write", "content", path="$.file_path"),
    tool("Bash", "bash", "command"),
    Tool(name="patch", acts_where={"write": ("$.changes[?@.kind == 'add']",),
        "edit": ("$.changes[?@.kind == 'update']",), "delete": ("$.changes[?@.kind == 'delete']",)},
        inputs={"path": ("$.changes[*].path",)}),
)  # fmt: skip


class JudgedSession:
    """One policy on the client's tools; its session goes on as it is, is restored, or is folded from the record."""

    def __init__(self, policy: dict[str, Any], way: str = "live", tools: tuple[Tool, ...] = CLIENT) -> None:
        written = {"version": 1, "name": "p", "on_violation": "deny", **policy}
        self.compiled = compile_policy(parse_policies(written)[0], tools=tools)
        self.way = way
        self.monitor: Monitor = self.compiled.monitor(RunContext(workspace="/w"))
        self.record: list[events.Event] = []
        self.turn = 0

    def __call__(self, name: str, output: Any = None, **input: Any) -> str:
        self.turn += 1
        id = f"c{self.turn}"
        fields: dict[str, Any] = {"run_id": "r", "tool_call_id": id, "tool_name": name}
        call = {**fields, "tool_input": input, "turn": self.turn}
        self.record.append(events.ToolCallRequested(**call))
        decision = self.monitor.propose(ToolCall(id=id, name=name, input=input, turn=self.turn))
        if decision.action == "allow":
            self._happens(events.ToolCallStarted(**call), events.ToolCallCompleted(**fields, tool_output=output))
        else:
            self._happens(events.ToolCallDenied(**fields, decision=decision.action))
        assert decision.tool_name == name
        assert decision.tool_input == input
        return decision.action

    def _happens(self, *happened: events.Event) -> None:
        for event in happened:
            self.record.append(event)
            self.monitor.observe(event)
        if self.way == "restored":
            self.monitor = self.compiled.restore(self.monitor.snapshot())
        elif self.way == "folded":
            self.monitor = self.compiled.monitor(RunContext(workspace="/w"))
            for event in self.record:
                self.monitor.observe(event)


@pytest.fixture(params=["live", "restored", "folded"])
def way(request: pytest.FixtureRequest) -> str:
    """How the state reaches the next call."""
    return str(request.param)


def test_a_call_is_denied_under_its_own_name_and_its_portable_one(way: str) -> None:
    """What the model is told keeps the client's name."""
    for name in ("bash", "shell", "sh*"):
        decide = JudgedSession({"tool_rules": [{"deny": [name]}]}, way)

        assert decide("Shell", cmd="ls") == "deny"
    assert JudgedSession({"tool_rules": [{"deny": ["bash"]}]}, tools=())("Shell", cmd="ls") == "allow"


def test_a_net_that_blocks_a_calls_own_name_is_not_passed_by_its_portable_one(way: str) -> None:
    """Each name must be acceptable by itself."""
    net = {
        "name": "n",
        "places": ["never"],
        "transitions": [{"name": "own", "inputs": ["never"], "tools": ["Shell"]}, {"name": "act", "tools": ["bash"]}],
    }
    decide = JudgedSession({"nets": [net]}, way)

    assert [decide("Shell", cmd="ls"), decide("Bash", command="ls")] == ["deny", "allow"]


def test_an_allow_list_admits_by_either_name(way: str) -> None:
    """Both are exact names."""
    assert JudgedSession({"tool_rules": [{"allow": ["bash"]}]}, way)("Shell", cmd="ls") == "allow"
    assert JudgedSession({"tool_rules": [{"allow": ["Shell"]}]}, way)("Shell", cmd="ls") == "allow"
    assert JudgedSession({"tool_rules": [{"allow": ["read"]}]}, way)("Shell", cmd="ls") == "deny"


@pytest.mark.parametrize("path", ["$.path", "$['path']", "$.file_path"])
def test_a_condition_names_an_input_by_either_name(way: str, path: str) -> None:
    """And the input that both names have is looked at once."""
    decide = JudgedSession(
        {"rules": [{"type": "blocklist", "tools": [{"tool": "write", "where": [{"path": path, "regex": "^/etc"}]}]}]},
        way,
    )

    assert decide("Write", file_path="/etc/passwd", content="x") == "deny"
    assert decide("Write", file_path="/w/a", content="x") == "allow"


def test_a_decoy_under_the_portable_name_hides_nothing(way: str) -> None:
    """What the client reads and what it does not are both looked at."""
    refuse = {"tool": "write", "where": [{"path": "$.path", "within": "/etc"}]}
    admit = {"tool": "write", "where": [{"path": "$.path", "within": "/w"}]}

    denying = JudgedSession({"rules": [{"type": "blocklist", "tools": [refuse]}]}, way)
    assert denying("Write", path="/w/a", file_path="/etc/passwd") == "deny"
    allowing = JudgedSession({"tool_rules": [{"allow": [admit]}]}, way)
    assert allowing("Write", path="/w/a", file_path="/etc/passwd") == "deny"
    assert allowing("Write", file_path="/w/a") == "allow"


def test_a_patch_is_one_call_with_several_paths_and_goes_by_all_that_it_does(way: str) -> None:
    """A refusal needs one of the acts; an allow list must admit each of them."""
    patch = [{"kind": "add", "path": "/w/a"}, {"kind": "delete", "path": "/w/b"}]
    deny_delete = JudgedSession({"tool_rules": [{"deny": ["delete"]}]}, way)
    assert deny_delete("patch", changes=patch) == "deny"
    assert deny_delete("patch", changes=patch[:1]) == "allow"
    allow_write = JudgedSession({"tool_rules": [{"allow": ["write"]}]}, way)
    assert allow_write("patch", changes=patch) == "deny"
    assert allow_write("patch", changes=patch[:1]) == "allow"
    assert JudgedSession({"tool_rules": [{"allow": ["write", "delete"]}]}, way)("patch", changes=patch) == "allow"
    assert JudgedSession({"tool_rules": [{"allow": ["patch"]}]}, way)("patch", changes=patch) == "allow"
    outside = {"tool": ["write", "delete"], "where": [{"not": [{"path": "$.path", "within": "."}]}]}
    decide = JudgedSession({"rules": [{"type": "blocklist", "tools": [outside]}]}, way)
    assert decide("patch", changes=patch) == "allow"
    assert decide("patch", changes=[*patch, {"kind": "add", "path": "/etc/a"}]) == "deny"


def test_a_patch_that_does_not_tell_what_it_does_may_do_everything(way: str) -> None:
    """An unreadable patch is refused by a denial of any of its acts."""
    assert JudgedSession({"tool_rules": [{"deny": ["delete"]}]}, way)("patch", input="*** ?") == "deny"
    assert JudgedSession({"tool_rules": [{"allow": ["write"]}]}, way)("patch", input="*** ?") == "deny"


def test_every_place_that_names_an_input_finds_it_by_its_portable_name(way: str) -> None:
    """`key`, `same`, operands, provenance and virtual tools."""
    once = JudgedSession({"rules": [{"type": "count", "tool": "write", "max": 1, "key": "$.path"}]}, way)
    assert [once("Write", file_path=name) for name in ("a", "b", "a")] == ["allow", "allow", "deny"]

    bound = {"type": "precondition", "tool": "bash", "requires": [{"prior": "write", "same": [{"path": "$.command",
             "prior_path": "$.path"}]}]}  # fmt: skip
    decide = JudgedSession({"rules": [bound]}, way)
    assert decide("Shell", cmd="a") == "deny"
    assert decide("Write", file_path="a") == "allow"
    assert decide("Shell", cmd="a") == "allow"

    where = {"tool": "write", "where": [{"path": "$.path", "equals": {"arg": "$.command"}}]}
    decide = JudgedSession({"rules": [{"type": "precondition", "tool": "bash", "requires": [{"prior": where}]}]}, way)
    assert decide("Write", file_path="a") == "allow"
    assert decide("Shell", script="a") == "allow"
    assert decide("Shell", script="b") == "deny"

    push = {"tool": "bash", "path": "$.command", "match": "push", "as": "publish"}
    decide = JudgedSession({"virtual_tools": [push], "tool_rules": [{"deny": ["publish"]}]}, way)
    assert decide("Shell", cmd="git push") == "deny"
    assert decide("Bash", command="git push") == "deny"

    rule = {"type": "provenance", "tool": "write", "path": "$.path", "from": [{"tool": "bash", "path": "$.found"}]}
    decide = JudgedSession({"rules": [rule]}, way)
    assert decide("Shell", cmd="find", output={"found": "a"}) == "allow"
    assert decide("Write", file_path="a") == "allow"
    assert decide("Write", file_path="b") == "deny"


def test_a_net_must_let_a_call_through_under_each_of_its_names(way: str) -> None:
    """A free name of the client does not free what the portable name holds."""
    net = {
        "name": "n",
        "places": ["ready"],
        "initial_marking": {"ready": 1},
        "free_tools": ["Shell"],
        "transitions": [{"name": "t", "type": "auto", "inputs": ["ready"], "outputs": [], "tools": ["bash"]}],
    }
    decide = JudgedSession({"nets": [net]}, way)

    assert [decide("Shell", cmd="a"), decide("Shell", cmd="a")] == ["allow", "deny"]


def test_a_portable_name_hides_a_tool_and_adds_nothing_to_its_input() -> None:
    """A tool that does several things only where none of them is left; a loop counts by the client's own input."""
    decide = JudgedSession({"tool_rules": [{"deny": ["bash", "write", "edit"]}]})
    assert decide.monitor.narrow(["Shell", "Write", "patch", "read"]) == ["patch", "read"]
    decide = JudgedSession({"tool_rules": [{"deny": ["write", "edit", "delete"]}]})
    assert decide.monitor.narrow(["patch"]) == []

    rule = {"type": "blocklist", "tools": [{"tool": "write", "where": [{"path": "$", "length_gte": 2}]}]}
    decide = JudgedSession({"rules": [rule]})
    assert decide("Write", file_path="a") == "allow"
    assert decide("Write", file_path="a", content="b") == "deny"

    decide = JudgedSession({"rules": [{"type": "loop", "window": 3, "threshold": 2}]})
    assert [decide("Write", file_path="a"), decide("Write", file_path="a")] == ["allow", "deny"]


@pytest.mark.parametrize("rule", [
    {"type": "precondition", "tool": "glob", "requires": [{"prior": "grep", "same": [{"path": "$.path"}]}]},
    {"type": "count", "tool": "glob", "max": 1, "key": "$.path"},
    {"type": "provenance", "tool": "glob", "path": "$.path", "extract": "/s.*", "from": ["user_message"]},
    {"type": "blocklist", "tools": ["secret"]},
])  # fmt: skip
def test_an_input_under_a_name_that_nobody_knows_passes_no_rule_that_compares_it(
    way: str, rule: dict[str, Any]
) -> None:
    """Two that are not known are not the same, and one of them is no value of its own."""
    tools = tuple(tool(name, name, "pattern", path="$.path") for name in ("grep", "glob"))
    secret = {"tool": "glob", "path": "$.path", "match": "^/s", "as": "secret"}
    decide = JudgedSession({"rules": [rule], "virtual_tools": [secret]}, way, tools)
    decide("grep", pattern="x", folder="/s")

    assert decide("glob", pattern="x", folder="/s") == "deny"


def test_the_portable_names_are_the_ones_of_the_language() -> None:
    """Eleven acts."""
    assert sorted(PORTABLE) == [
        "bash", "delete", "edit", "fetch", "glob", "grep", "move", "read", "task", "web_search", "write",
    ]  # fmt: skip

"""Nets with Python functions: mappers that name calls, validators and result hooks."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.policies import Monitor, Net, PolicyError, ToolCall, compile_policy, parse_policies
from proctor.policies.events import ToolCallCompleted
from proctor.policies.values.globs import glob_regex, overlap


def pushes(call: Any) -> str | None:
    """Name a push by its command line."""
    return "git-push" if call.name == "bash" and "push" in call.input.get("command", "") else None


def watched(net: Any, mapper: Any, **more: Any) -> Monitor:
    """A monitor of one net with a mapper."""
    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny", "nets": [net], **more})
    name = net if isinstance(net, str) else net.get("name") or net["line"]
    return compile_policy(policy, mappers={name: mapper}).monitor()


def answer(monitor: Monitor, name: str, id: str = "c", **input: Any) -> str:
    return monitor.propose(ToolCall(id=id, name=name, input=input)).action


def release(**more: Any) -> dict[str, Any]:
    """A net that allows one push."""
    spend = {"name": "spend", "inputs": ["budget"], "tools": ["git-push"]}
    return {"name": "n", "places": ["budget"], "initial_marking": {"budget": 1}, "transitions": [spend], **more}


@pytest.mark.parametrize("given", ["git-push", ["git-push"], ("other", "GIT-PUSH"), {"git-push"}])
def test_a_call_is_matched_by_a_name_that_the_mapper_returns(given: Any) -> None:
    """One name or several, in any case."""
    monitor = watched("block git-push", lambda call: given if pushes(call) else None)

    assert answer(monitor, "bash", "1", command="git push") == "deny"
    assert answer(monitor, "bash", "2", command="ls") == "allow"
    [how] = monitor.finish().rules.values()
    assert how.status == "violated"


def test_functions_of_a_net_cannot_modify_the_call() -> None:
    """Each gets a copy of the input. The next rule and the event log get the agent's."""
    seen: list[str] = []

    def changes(call: Any, *_: Any) -> None:
        seen.append(call.input.get("command", ""))
        call.input["command"] = "ls"

    net = {**release(), "transitions": [{"name": "run", "inputs": ["budget"], "tools": ["bash"], "deferred": True}]}
    where = [{"path": "$.command", "runs": ["git push"]}]
    before = {"type": "before", "first": {"tool": "bash", "where": where}, "then": "ship"}
    [policy] = parse_policies({"name": "p", "on_violation": "deny", "nets": [net], "rules": [before]})
    functions: dict[str, Any] = {"n": changes}
    session = compile_policy(policy, validators=functions, on_results=functions, mappers=functions).monitor()
    allowed = answer(session, "bash", command="git push")
    session.observe(ToolCallCompleted(tool_call_id="c", tool_name="bash"))

    assert (allowed, answer(session, "ship", "2")) == ("allow", "allow")
    assert {*seen} == {"git push", ""}


def test_calls_named_by_the_mapper_fire_transitions() -> None:
    """A limit counts them. A call without such a name does not change the net."""
    monitor = watched("limit git-push to 1 per session", pushes)
    answers = [
        answer(monitor, "bash", str(n), command=line) for n, line in enumerate(["ls", "git push", "ls", "git push"])
    ]

    assert answers == ["allow", "allow", "allow", "deny"]


def test_a_deferred_transition_sees_the_end_of_a_mapped_call() -> None:
    """`require` counts a prerequisite that only the mapper names."""
    monitor = watched("require tests before deploy", lambda call: "tests" if call.input.get("command") == "t" else ())
    first = answer(monitor, "deploy", "1")
    assert answer(monitor, "bash", "2", command="t") == "allow"
    monitor.observe(ToolCallCompleted(tool_call_id="2", tool_name="bash", tool_output="ok"))

    assert (first, answer(monitor, "deploy", "3")) == ("deny", "allow")


def test_the_strictest_of_a_calls_names_decides() -> None:
    """An unrestricted name does not allow what another name denies."""
    for more in ({"free_tools": ["bash"]}, {"free_tools": ["ls"]}):
        monitor = watched(release(initial_marking={}, **more), lambda call: ["ls", "git-push"])
        assert answer(monitor, "bash", command="git push; ls") == "deny"


def test_a_call_of_one_name_twice_fires_once() -> None:
    """The mapper returns the call's own name."""
    monitor = watched(release(), lambda call: [call.name, "git-push"])

    assert [answer(monitor, "git-push", id) for id in "12"] == ["allow", "deny"]


def test_globs_aliases_and_conditions_hold_for_names_of_the_mapper() -> None:
    """They match its names as they match a tool's."""
    tools = {"never": ["git-*"], "aliased": ["publish"], "where": [{"tool": "git-push", "where": [COMMAND]}]}
    for selector in tools.values():
        transition = {"name": "t", "inputs": ["never"], "tools": selector}
        net = {"name": "n", "places": ["never"], "transitions": [transition]}
        monitor = watched(net, pushes, aliases={"publish": ["git-push"]})
        assert answer(monitor, "bash", "1", command="git push") == "deny"
        assert answer(monitor, "bash", "2", command="ls") == "allow"


COMMAND = {"path": "$.command", "contains": "git"}


def raises(call: Any) -> str:
    """A mapper that raises."""
    raise KeyError(call.name)


async def nobody_waits() -> str:
    return "git-push"


def coroutine(call: Any) -> Any:
    """An awaitable, as an `async` function returns."""
    made = nobody_waits()
    made.close()
    return made


@pytest.mark.parametrize("mapper", [raises, coroutine, lambda call: 3, lambda call: [3], lambda call: b"git-push"])
@pytest.mark.parametrize("tool", ["bash", "git-push", "ls"])
def test_a_mapper_that_raises_denies_the_call(mapper: Any, tool: str) -> None:
    """Whatever the net decides for the call's own name, and whatever its action."""
    monitor = watched(release(free_tools=["ls"], action="warn"), mapper)

    decision = monitor.propose(ToolCall(id="c", name=tool, input={}))

    assert decision.action == "deny"
    assert "it raised" in decision.violations[0].message


def test_a_mapper_can_be_attached_to_an_added_net() -> None:
    """Like validators and result hooks. It stays attached while the net is removed."""
    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny"})
    monitor = compile_policy(policy).monitor()
    monitor.add_net("block git-push", mapper=pushes)
    assert answer(monitor, "bash", "1", command="git push") == "deny"
    monitor.remove_net("block git-push")
    assert answer(monitor, "bash", "2", command="git push") == "allow"
    monitor.add_net("block git-push")
    assert answer(monitor, "bash", "3", command="git push") == "deny"
    monitor.remove_net("block git-push")
    monitor.add_net("block git-push", mapper=lambda call: None)
    assert answer(monitor, "bash", "4", command="git push") == "allow"


def test_an_added_net_needs_a_name_that_no_rule_or_removed_net_has() -> None:
    """The removed net would be evaluated in its place, and two nets of one name would be reported as one."""
    on = monitor(rules=[{"type": "require", "id": "r", "tool": "x"}])
    on.remove_net("n")
    for name, wrong in (("n", "is another one: give this one another name"), ("r", "is active already")):
        with pytest.raises(ValueError, match=wrong):
            on.add_net(msgspec.convert({**NET, "name": name, "free_tools": []}, Net))
    on.add_net(msgspec.convert(NET, Net))

    assert on.resolve("ls")["n"] == "free"


@pytest.mark.parametrize("given", [3, "git-push", nobody_waits])
def test_only_a_plain_function_can_be_attached(given: Any) -> None:
    """An `async` mapper, validator or result hook would never be awaited."""
    [policy] = parse_policies({"version": 1, "name": "p", "nets": ["block git-push"]})
    attached: Any = ({each: {"block git-push": given}} for each in ("mappers", "validators", "on_results"))
    for each in attached:
        with pytest.raises(PolicyError, match="not a plain function"):
            compile_policy(policy, **each)
    with pytest.raises(PolicyError, match="not a plain function"):
        compile_policy(policy).monitor().add_net("block mv", on_result=given)


def test_a_mapper_of_a_missing_net_is_an_error() -> None:
    """With a misspelt name, it would never be called."""
    [policy] = parse_policies({"version": 1, "name": "p", "nets": ["block git-push"]})
    with pytest.raises(PolicyError, match="no net is called `block push`"):
        compile_policy(policy, mappers={"block push": pushes})


NET = {
    "name": "n",
    "places": ["idle", "never"],
    "initial_marking": {"idle": 1},
    "transitions": [
        {"name": "go", "inputs": ["idle"], "tools": ["deploy"]},
        {"name": "ask", "type": "manual", "tools": ["ship"]},
        {"name": "no", "inputs": ["never"], "tools": ["git-push"]},
    ],
    "free_tools": ["ls"],
}


def monitor(rules: Any = (), **attached: Any) -> Any:
    nets = [NET, "block rm", 'map bash.command "git push" as git-push']
    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny", "nets": nets, "rules": [*rules]})
    return compile_policy(policy, **attached).monitor()


@pytest.mark.parametrize(("tool", "input", "says"), [
    ("ls", None, "free"),
    ("read", None, "abstain"),
    ("deploy", None, "gated"),
    ("DEPLOY", None, "gated"),
    ("ship", None, "gated"),
    ("git-push", None, "blocked"),
    ("bash", None, "abstain"),
    ("bash", {"command": "git push"}, "blocked"),
    ("bash", {"command": "(git  push)"}, "blocked"),
    ("bash", {"command": "git pushes"}, "abstain"),
])  # fmt: skip
def test_each_net_reports_what_a_call_would_do(tool: str, input: Any, says: str) -> None:
    """For every name of the call."""
    assert monitor().resolve(tool, input) == {"n": says, "block rm": "abstain"}


def test_resolving_a_call_does_not_change_the_state() -> None:
    """The second answer is the same. After the token is spent, it differs."""
    session = monitor()
    before = session.snapshot()
    assert [session.resolve("deploy")["n"] for _ in "12"] == ["gated", "gated"]
    assert session.snapshot() == before
    session.propose(ToolCall(id="1", name="deploy", input={}))

    assert session.resolve("deploy") == {"n": "blocked", "block rm": "abstain"}
    session.remove_net("n")
    assert session.resolve("rm") == {"block rm": "blocked"}


def test_a_call_is_resolved_with_the_mapper_and_blocked_if_that_fails() -> None:
    """As for a real call."""
    assert monitor(mappers={"n": lambda call: "deploy"}).resolve("x")["n"] == "gated"
    assert monitor(mappers={"n": lambda call: "ls"}).resolve("x")["n"] == "free"
    assert monitor(mappers={"n": lambda call: 3}).resolve("x")["n"] == "blocked"


@pytest.mark.parametrize(("tool", "input"), [(3, None), (None, {}), ("bash", "git push"), ("bash", [])])
def test_a_value_that_is_no_call_is_an_error(tool: Any, input: Any) -> None:
    with pytest.raises(ValueError, match="not a tool's name and an input"):
        monitor().resolve(tool, input)


OVERLAPPING = [
    *("require * before deploy", "require deploy before deploy", "require DEPLOY before deploy"),
    *("require deploy* before *_prod", "require [a-d]eploy before deploy", "limit push to 3 per push"),
    *("limit * to 3 per test", "require Release before deploy", "limit Release to 1 per ship"),
]
APART = [
    *("require backup before delete", "require mcp__a__* before mcp__b__*", "require human-approval before *"),
    *("limit * to 3 per session", "block *", "require Release before push"),
]


def document(line: Any) -> dict[str, Any]:
    return {"name": "p", "aliases": {"Release": ["deploy", "ship"]}, "nets": [line]}


@pytest.mark.parametrize("line", OVERLAPPING)
def test_a_line_with_overlapping_sides_is_an_error(line: str) -> None:
    """Through the tool's name, a glob, or an alias of the policy; also in a net added to a live session."""
    for written in (line, {"line": line, "action": "deny"}):
        with pytest.raises(PolicyError, match="both") as raised:
            parse_policies(document(written))

        assert len(raised.value.problems) == 1
    live = compile_policy(parse_policies(document("block *"))[0]).monitor()
    with pytest.raises(ValueError, match="both"):
        live.add_net(line)


@pytest.mark.parametrize("line", APART)
def test_a_line_with_distinct_sides_loads(line: str) -> None:
    assert parse_policies(document(line))


patterns = st.text("ab?*", min_size=1, max_size=4)


@given(patterns, patterns)
def test_two_patterns_overlap_if_some_name_matches_both(left: str, right: str) -> None:
    """Compared with all names up to a sufficient length."""
    names = [""]
    for _ in range(6):
        names += [name + char for name in names for char in "ab" if len(name) < 6]
    both = any(glob_regex(left).found_in(name) and glob_regex(right).found_in(name) for name in set(names))

    assert overlap(left, right) == both

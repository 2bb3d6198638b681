"""Preflight compared with the monitor: a call reported as impossible never happens, and every other call can."""

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.policies import CompiledPolicy, Monitor, compile_policy, merge_policies, parse_policies, preflight
from proctor.policies import events as ev
from proctor.policies.analysis.call_classes import CallClasses, NameUniverse
from proctor.policies.analysis.explorer import ClauseGraph, clause_graphs
from proctor.policies.analysis.net_checks import walk
from proctor.policies.analysis.order_checks import find_orders
from proctor.policies.analysis.reachability import Saturation
from proctor.policies.events.calls import ToolCall
from proctor.policies.rules.petri_net import NetMachine, Transition, silent_cycle
from proctor.policies.stack.clauses import clauses_of
from proctor.policies.values.globs import matcher

TOOLS = ("a", "b", "c")
OTHER = "d"
"""A tool that only globs match."""
MENTIONED = {"type": "max_calls", "id": "mentioned", "tool": list(TOOLS), "max": 99, "action": "warn"}
DEPTH = 7
BASE = {"version": 1, "name": "p", "on_violation": "deny"}
tool = st.sampled_from(TOOLS)
some = st.one_of(tool, st.lists(tool, min_size=1, max_size=2, unique=True), st.just("*"))
rule = st.one_of(
    st.builds(lambda f, t, m: {"type": "before", "first": f, "then": t, "first_must": m},
              some, some, st.sampled_from(["started", "completed"])),
    st.builds(lambda f, t: {"type": "immediately_before", "first": f, "then": t}, tool, tool),
    st.builds(lambda f, t: {"type": "never_after", "trigger": f, "forbidden": t}, some, tool),
    st.builds(lambda f, t: {"type": "forbids_after", "tool": f, "tools": [t]}, some, tool),
    st.builds(lambda t, f: {"type": "precondition", "tool": t, "requires": [{"prior": f}]}, tool, some),
    st.builds(lambda t, *p: {"type": "precondition", "tool": t, "requires": [{"any_of": [{"prior": f} for f in p]}]},
              tool, tool, tool),
    st.builds(lambda t, s: {"type": "sequence", "tools": t, "strict": s},
              st.lists(tool, min_size=2, max_size=3), st.booleans()),
    st.builds(lambda t, s: {"type": "forbidden_sequence", "sequence": t, "adjacency": s},
              st.lists(tool, min_size=2, max_size=3), st.sampled_from(["strict", "any"])),
    st.builds(lambda t, n, of: {"type": "count", "tool": t, "max": n, "of": of},
              some, st.integers(0, 2), st.sampled_from(["started", "completed"])),
    st.builds(lambda f, t, n: {"type": "after", "trigger": f, "then": t, "within": n}, tool, some, st.integers(1, 2)),
    st.builds(lambda t, n: {"type": "eventually", "tool": t, "within": n}, tool, st.integers(1, 3)),
)  # fmt: skip


def has_distinct_sides(line: str) -> bool:
    """Whether the two sides of a line are different tools."""
    return line.split()[1] != line.split()[-1]


line = st.one_of(
    st.builds("require {} before {}".format, tool, tool).filter(has_distinct_sides),
    st.builds("limit {} to {} per {}".format, tool, st.integers(0, 2), st.sampled_from([*TOOLS, "session"])).filter(
        has_distinct_sides
    ),
    st.builds("block {}".format, tool),
)
place = st.sampled_from(["p", "q", "r"])
transition = st.builds(
    lambda i, o, t, d: {"inputs": i, "outputs": o, "tools": t, "deferred": d and bool(t)},
    st.lists(place, max_size=2), st.lists(place, max_size=2), st.lists(tool, max_size=2, unique=True), st.booleans(),
)  # fmt: skip


def without_silent_cycles(net: dict[str, Any]) -> bool:
    """Whether the parser accepts the net."""
    return not silent_cycle(msgspec.convert(net["transitions"], tuple[Transition, ...]))


written_net = st.builds(
    lambda transitions, marking, capacity: {
        "name": "n",
        "places": ["p", "q", "r"],
        "initial_marking": marking,
        "capacity": capacity,
        "transitions": [{"name": f"t{n}", **each} for n, each in enumerate(transitions)],
    },
    st.lists(transition, min_size=1, max_size=4),
    st.dictionaries(place, st.integers(0, 2)),
    st.dictionaries(place, st.integers(1, 2)),
).filter(without_silent_cycles)
policy = st.builds(
    lambda rules, nets: {
        "version": 1,
        "name": "p",
        "on_violation": "deny",
        "rules": [*rules, MENTIONED],
        "nets": nets,
    },
    st.lists(rule, min_size=1, max_size=4),
    st.lists(line, max_size=2, unique=True),
)
quick = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def compiled_with_callable(document: dict[str, Any]) -> tuple[CompiledPolicy, set[str]]:
    """The compiled policy, and the tools that preflight considers callable."""
    stack = merge_policies(parse_policies(document))
    clauses = clauses_of(stack)
    kinds = CallClasses(stack, clauses)
    graphs = [graph for graph in clause_graphs(clauses, kinds, frozenset()) if graph.clause.binds]
    possible = Saturation(graphs, kinds)
    assert list(find_orders(possible, graphs)) == []
    return compile_policy(stack), {kind.name for kind in possible.found} & set(TOOLS)


def step(monitor: Monitor, number: int, tool: str, ok: bool) -> bool:
    """Propose a call and end it; true if it was allowed."""
    id = f"c{number}"
    decision = monitor.propose(ToolCall(id=id, name=tool, turn=number + 1))
    if decision.action in ("deny", "cancel"):
        monitor.observe(ev.ToolCallDenied(tool_call_id=id, tool_name=tool, decision=decision.action))
        return False
    if ok:
        monitor.observe(ev.ToolCallCompleted(tool_call_id=id, tool_name=tool, tool_output=None))
    else:
        monitor.observe(ev.ToolCallFailed(tool_call_id=id, tool_name=tool, error="boom"))
    return True


def reachable(compiled: CompiledPolicy, wanted: set[str]) -> set[str]:
    """The tools that some short trace allows. Tries all traces until every wanted tool was allowed."""
    found: set[str] = set()
    level = [compiled.monitor().snapshot()]
    for number in range(DEPTH):
        following: dict[bytes, bytes] = {}
        for snapshot in level:
            for tool in (*TOOLS, OTHER):
                for ok in (True, False):
                    monitor = compiled.restore(snapshot)
                    if step(monitor, number, tool, ok):
                        found.add(tool)
                        following.setdefault(msgspec.json.encode(monitor.state.states), monitor.snapshot())
        if found >= wanted:
            break
        level = list(following.values())
    return found


@quick
@given(policy, st.lists(st.tuples(tool | st.just(OTHER), st.booleans()), max_size=25))
def test_a_call_reported_as_impossible_is_allowed_on_no_trace(
    document: dict[str, Any], trace: list[tuple[str, bool]]
) -> None:
    compiled, possible = compiled_with_callable(document)
    monitor = compiled.monitor()
    let_through = {tool for n, (tool, ok) in enumerate(trace) if step(monitor, n, tool, ok)}

    assert let_through - {OTHER} <= possible


@settings(quick, max_examples=100)
@given(policy)
def test_a_call_considered_possible_is_allowed_on_some_trace(document: dict[str, Any]) -> None:
    """Tries all short traces. In these policies, some input satisfies every condition."""
    compiled, possible = compiled_with_callable(document)

    assert possible <= reachable(compiled, possible)


demand = st.one_of(
    st.builds(lambda t: {"type": "require", "tool": t}, some),
    st.builds(lambda t, n, of: {"type": "count", "tool": t, "min": n, "of": of},
              tool, st.integers(1, 2), st.sampled_from(["started", "completed"])),
)  # fmt: skip


@quick
@given(policy, st.lists(demand, min_size=1, max_size=3), st.lists(st.tuples(tool, st.booleans()), max_size=25))
def test_a_run_that_satisfies_every_requirement_was_not_rejected(
    document: dict[str, Any], demands: list[dict[str, Any]], trace: list[tuple[str, bool]]
) -> None:
    """Calls that the monitor denied never ran."""
    stack = merge_policies(parse_policies({**document, "rules": [*document["rules"], *demands]}))
    monitor = compile_policy(stack).monitor()
    for n, (name, ok) in enumerate(trace):
        step(monitor, n, name, ok)
    owed = [violation for violation in monitor.finish().violations if violation.enforcement != "prevented"]
    rejections = [finding for finding in preflight(stack) if finding.code == "never_satisfied"]

    assert owed or not [finding for finding in rejections if finding.severity == "refuse"]


followable_net = written_net.filter(lambda net: all(t["tools"] for t in net["transitions"]))
clause = st.one_of(
    st.builds(lambda rule: {"rules": [rule]}, rule | demand),
    st.builds(lambda line: {"nets": [line]}, line),
    st.builds(lambda net: {"nets": [net]}, followable_net),
)


@settings(quick, max_examples=400)
@given(clause, st.lists(st.tuples(tool | st.just(OTHER), st.booleans()), max_size=15))
def test_the_graph_of_a_rule_decides_as_the_rule_does(
    document: dict[str, Any], trace: list[tuple[str, bool]]
) -> None:
    """Both decide each call alike whatever was allowed before, and owe the same at the end."""
    stack = merge_policies(parse_policies({**BASE, **document}))
    clauses = clauses_of(stack)
    kinds = CallClasses(stack, clauses)
    (graph,) = clause_graphs(clauses, kinds, frozenset())
    unnamed = next((name for name in kinds.names.all if name not in kinds.names.plain), "")
    monitor = compile_policy(stack).monitor()
    state = graph.shared.start
    for number, (name, ok) in enumerate(trace):
        mask = graph.mask(name if name in kinds.names.plain else unnamed, frozenset())
        admitted = graph.allows(state, mask)

        assert step(monitor, number, name, ok) == admitted
        if admitted:
            state = graph.after(state, mask, "completed" if ok else "failed")

        assert graph.shared.may_end(state) == (graph.machine.finding_at_end(monitor.state.states[0]) is None)


@quick
@given(written_net, st.lists(st.tuples(tool, st.sampled_from(["ok", "failed", "open"])), max_size=30))
def test_a_transition_reported_as_dead_never_fires(net: dict[str, Any], trace: list[tuple[str, str]]) -> None:
    """No place holds more tokens than the search found."""
    stack = merge_policies(parse_policies({**BASE, "nets": [net]}))
    (clause,) = clauses = clauses_of(stack)
    kinds = CallClasses(stack, clauses)
    machine = clause.machine()
    assert isinstance(machine, NetMachine)
    graph = ClauseGraph(clause, machine, kinds, {})
    walked = walk(machine, {graph.mask(*kind) for kind in kinds.all})
    if not walked.complete:
        return
    state, fired = machine.begin()
    for number, (tool, ending) in enumerate(trace):
        firing = machine.firing(state.marking, graph.mask(tool, frozenset())) or []
        fired += machine.fire(state, f"c{number}", firing)
        if ending != "open":
            fired += machine.finish(state, f"c{number}", failed=ending == "failed")
        most = dict(zip(net["places"], walked.highest, strict=True))

        assert set(fired) <= walked.fired
        assert all(tokens <= most[place] for place, tokens in state.marking.items())


glob = st.text("ab*?", min_size=1, max_size=5) | st.sampled_from(["[ab]*", "*[!a]", "[!b]?", "a[a-c]"])


@quick
@given(st.lists(glob, min_size=1, max_size=4), st.text("abcx", min_size=1, max_size=6))
def test_every_tool_name_is_represented_in_the_universe(globs: list[str], name: str) -> None:
    """Some name of the universe is matched by the same globs."""
    universe = NameUniverse(globs)
    matchers = [matcher([glob]) for glob in globs]
    matched = [matches(name) for matches in matchers]

    assert universe.complete
    assert any(matched == [matches(sample) for matches in matchers] for sample in universe.all)

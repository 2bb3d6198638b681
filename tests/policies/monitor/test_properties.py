"""Theorems of the policy language: properties of every policy and every session."""

import copy
import itertools
import os
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from reference.generating import any_policy, any_rule, inputs, nets, sessions, stacks, tool_rules
from reference.twins import Step, Twins, compiled, state

from proctor.policies import Limits, Monitor, PolicyError, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import STRICTNESS, Decision, ToolCall

LONG = int(os.environ.get("PROCTOR_LONG") or 0)
"""Examples of each property in a long run; 0 for the default number."""

checked = settings(max_examples=LONG or 50, suppress_health_check=list(HealthCheck))
limits = st.fixed_dictionaries(
    {},
    optional={
        "max_tool_calls": st.integers(0, 3),
        "max_turns": st.integers(0, 3),
        "max_total_tokens": st.just(5),
        "max_cost_usd": st.integers(0, 5),
    },
)
clauses = st.one_of(
    tool_rules.map(lambda clause: {"tool_rules": [clause]}),
    any_rule.map(lambda rule: {"rules": [rule]}),
    nets().map(lambda net: {"nets": [net]}),
)
actions = st.sampled_from(["warn", "request_approval", "deny", "cancel"])
capped = st.builds(
    lambda names, most, action: {name: {"max": most, **({"action": action} if action else {})} for name in names},
    st.sets(st.sampled_from(["max_tool_calls", "max_turns", "max_total_tokens", "max_cost_usd"])),
    st.integers(0, 9),
    actions | st.none(),
)
rates = st.integers(0, 2).map(lambda usd: {"input_usd_per_mtok": usd * 1e6, "output_usd_per_mtok": usd * 1e6})
definitions = st.fixed_dictionaries(
    {},
    optional={
        "prices": st.dictionaries(st.sampled_from(["m", "*", "x"]), rates, max_size=2),
        "aliases": st.dictionaries(st.sampled_from(["a", "b", "D.x", "Any", "git-push"]), st.just(["z"]), max_size=2),
        "virtual_tools": st.just([{"tool": "z", "path": "$", "match": "x", "as": "a"}]),
        "enforcement": st.sampled_from(["best_effort", "required"]),
        "unpriced": st.sampled_from(["warn", "reject"]),
        "approval": st.fixed_dictionaries({"timeout_s": st.integers(1, 9)}),
        "on_violation": actions,
        "limits": capped,
        "tool_rules": st.just([{"allow": ["*"]}]),
        "metadata": st.just({"locked": False}),
    },
)
"""Parts of a policy that deny nothing: names, prices, texts and weaker limits."""
pasts = st.lists(st.tuples(st.sampled_from("abc"), inputs, st.sampled_from(["done", "failed", "flying"])), max_size=6)
TOOLS = ["a", "b", "c", "D.x"]


def started(stack: list[Any]) -> Monitor:
    """A monitor of a stack. A stack that does not load is no example."""
    try:
        monitor: Monitor = compiled(stack).monitor()
    except PolicyError:
        assume(False)
        raise
    return monitor


def lived(monitor: Monitor, past: list[Any]) -> Monitor:
    """The monitor after these calls ran and the user wrote these messages."""
    monitor.observe(ev.MessageSent(role="user", content="pay 1"))
    monitor.observe(ev.TokenUsageUpdated(input_tokens=3, output_tokens=1, model="m"))
    for n, (tool, input, end) in enumerate(past):
        call: dict[str, Any] = {"tool_call_id": f"c{n}", "tool_name": tool}
        monitor.observe(ev.ToolCallStarted(**call, tool_input=input, turn=n // 2 + 1))
        if end == "done":
            monitor.observe(ev.ToolCallCompleted(**call, tool_output=input))
        elif end == "failed":
            monitor.observe(ev.ToolCallFailed(**call, error="boom"))
    return monitor


def answer(monitor: Monitor, tool: str, input: dict[str, Any], turn: int = 9) -> Decision:
    return monitor.propose(ToolCall(id="new", name=tool, input=copy.deepcopy(input), turn=turn))


def never_weaker(stack: list[Any], more: list[Any], past: list[Any], tool: str, input: dict[str, Any]) -> None:
    """The longer stack decides at least as strictly after the same events.

    It names as many violations, except for a limit that a stricter one replaced. A limit warns once a run, and the
    stricter one did so earlier.
    """
    before = _weighed(answer(lived(started(stack), past), tool, input))
    after = _weighed(answer(lived(started(more), past), tool, input))

    assert max((rank for _, rank in after), default=0) >= max((rank for _, rank in before), default=0)
    assert len([id for id, _ in after if id not in LIMITS]) >= len([id for id, _ in before if id not in LIMITS])
    assert {id for id, _ in after} & LIMITS >= {id for id, _ in before} & LIMITS


LIMITS = set(Limits.__struct_fields__)


def _weighed(decision: Decision) -> list[tuple[str, int]]:
    """The severity of each violation, by rule."""
    found = decision.violations
    return [(v.rule, STRICTNESS[v.action]) for v in found if v.action != "warn" or v.kind not in LIMITS]


@settings(checked, max_examples=2 * checked.max_examples)
@given(stacks, clauses, st.booleans(), pasts, st.sampled_from(TOOLS), inputs)
def test_adding_a_list_a_rule_or_a_net_never_weakens_a_decision(
    stack: list[Any], clause: Any, first: bool, past: list[Any], tool: str, input: dict[str, Any]
) -> None:
    """Section 7: denies unite, allow lists intersect, and one net that denies is enough, anywhere in the stack."""
    added = {"name": "s", **clause}
    never_weaker(stack, [added, *stack] if first else [*stack, added], past, tool, input)


@checked
@given(
    stacks,
    limits,
    definitions,
    rates,
    any_policy,
    limits,
    definitions,
    st.integers(0, 3),
    pasts,
    st.sampled_from(TOOLS),
    inputs,
)
def test_adding_a_locked_policy_never_weakens_a_decision(
    stack: list[Any],
    caps: Any,
    words: Any,
    rate: Any,
    locked: Any,
    ceilings: Any,
    priced: Any,
    place: int,
    past: list[Any],
    tool: str,
    input: dict[str, Any],
) -> None:
    """Section 7: a locked value is a maximum anywhere in the stack, and replaces no stricter one.

    The model has a price already. A locked policy may set any price that was unknown or public.
    """
    words = {**words, "prices": {"m": rate, **words.get("prices", {})}}
    stack = [{**words, **stack[0], "limits": caps}, *stack[1:]]
    added = {**locked, **priced, "name": "s", "locked": True, "limits": ceilings}
    never_weaker(stack, [*stack[:place], added, *stack[place:]], past, tool, input)


@checked
@given(
    st.lists(st.tuples(any_policy, limits, definitions), min_size=1, max_size=2),
    st.lists(definitions, min_size=1, max_size=3),
    st.permutations(range(5)),
    pasts,
    st.sampled_from(TOOLS),
    inputs,
)
def test_nothing_in_another_policy_weakens_a_locked_one(
    locked: Any, others: Any, order: list[int], past: list[Any], tool: str, input: dict[str, Any]
) -> None:
    """Section 7: prices, names, texts and limits of policies that are not locked, in any order and number."""
    org = [
        {**words, **policy, "name": f"p{n}", "locked": True, "limits": caps}
        for n, (policy, caps, words) in enumerate(locked)
    ]
    more = [*org, *({**words, "name": f"q{n}"} for n, words in enumerate(others))]
    never_weaker(org, [more[n] for n in order if n < len(more)], past, tool, input)


@checked
@given(stacks, pasts, st.sampled_from(TOOLS), inputs)
def test_the_order_of_policies_does_not_change_which_calls_are_denied(
    stack: list[Any], past: list[Any], tool: str, input: dict[str, Any]
) -> None:
    """Section 7: the same violations with the same actions in every order."""
    answers = set()
    for order in itertools.permutations(stack):
        found = answer(lived(started(list(order)), past), tool, input)
        answers.add((found.action, tuple(sorted((v.policy, v.rule, v.action) for v in found.violations))))

    assert len(answers) == 1


ATTEMPTS = ("circuit_breaker",)


def spent(monitor: Monitor) -> Any:
    """The state that a call can spend: of all rules but breakers and counters of attempts, with counts
    and outputs.
    """
    kinds = {rule.number: rule.machine for rule in monitor.state.program.rules}
    states = {
        number: kept
        for number, kept in state(monitor).get("states", {}).items()
        if kinds[int(number)].kind not in ATTEMPTS and not kinds[int(number)].attempts
    }
    return states, monitor.state.session.count, monitor.state.session.limits.calls, state(monitor).get("returned")


@checked
@given(stacks, limits, pasts, st.sampled_from(TOOLS), inputs)
def test_a_denied_call_changes_only_attempts_and_breakers(
    stack: list[Any], caps: Any, past: list[Any], tool: str, input: dict[str, Any]
) -> None:
    """Sections 1 and 8: if any rule denies, nothing is spent."""
    monitor = lived(started([{**stack[0], "limits": caps}, *stack[1:]]), past)
    before = spent(monitor)
    decision = answer(monitor, tool, input)
    assume(decision.action in ("deny", "cancel", "request_approval"))
    monitor.observe(ev.ToolCallDenied(tool_call_id="new", tool_name=tool, decision="deny"))

    assert spent(monitor) == before


@checked
@given(stacks, pasts, st.sampled_from(TOOLS), st.lists(inputs, min_size=1, max_size=4))
def test_narrowing_never_hides_a_call_that_would_be_allowed(
    stack: list[Any], past: list[Any], tool: str, tried: list[dict[str, Any]]
) -> None:
    """Section 10: a hidden tool is denied in the next turn, with any input."""
    policy = lived(started(stack), past)
    visible = policy.narrow([tool])
    for input in tried:
        again = lived(started(stack), past)
        action = answer(again, tool, input, turn=again.state.session.turn + 1).action

        assert visible or action in ("deny", "cancel")


def simple(value: Any) -> bool:
    """Whether a rule has no conditions on inputs, no key and no binding."""
    return not any(word in str(value) for word in ("where", "key", "same", "arg", "Both", "vp"))


PROBES: list[dict[str, Any]] = [{}, {"o": 1}, {"o": 2}, {"o": "unheard-of"}, {"t": "x"}, {"t": "x", "o": 1}, {"u": 1}]


@checked
@given(any_rule.filter(simple), pasts, st.sampled_from(TOOLS))
def test_narrowing_hides_a_tool_that_a_single_rule_denies_for_every_input(
    rule: Any, past: list[Any], tool: str
) -> None:
    """Section 10: for rules on names alone."""
    stack = [{"name": "p", "rules": [{**rule, "action": "deny"}]}]
    for input in PROBES:
        monitor = lived(started(stack), past)
        if answer(monitor, tool, input, turn=monitor.state.session.turn + 1).action == "allow":
            return

    assert lived(started(stack), past).narrow([tool]) == []


@checked
@given(stacks, sessions)
def test_duplicate_events_of_a_call_never_count_twice(stack: list[Any], steps: list[Step]) -> None:
    """Section 1: if every event of a call comes twice, the state and the findings are those of coming once."""
    try:
        policy = compiled(stack)
    except PolicyError:
        return
    twins = Twins(stack, policy)
    twins.play(steps)
    once, twice = (policy.monitor() for _ in range(2))
    for event in twins.record:
        once.observe(event)
        twice.observe(event)
        if not isinstance(event, ev.MessageSent | ev.PolicyViolated):
            assert twice.observe(event) == []

    assert state(twice) == state(once)


def test_a_policy_twice_in_a_stack_denies_the_same_calls() -> None:
    """Sections 5 and 7: duplicates change the ids that are shown, not the decision."""
    document = {"version": 1, "name": "p", "on_violation": "deny", "tool_rules": [{"deny": ["a"]}]}
    twice = compile_policy(merge_policies(parse_policies(document) * 2)).monitor()
    found = twice.propose(ToolCall(id="1", name="a"))

    assert (found.action, len({violation.rule for violation in found.violations})) == ("deny", 2)

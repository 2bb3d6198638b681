"""Policies and sessions for the differential tests, over small alphabets, so that calls interact."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec import UNSET

from proctor.policies import RunContext

from .twins import Step

TOOLS = ["a", "b", "c", "D.x"]
VIRTUAL = [
    {"tool": "a", "path": "$.t", "match": "p", "as": "vp"},
    {"tool": "?", "path": "$.t", "match": "^q", "as": "b"},
]
ALIASES = {"Both": ["a", "d.*"]}
NAMES = [*TOOLS, "A", "d.*", "[ab]", "?", "*", "Both", "vp"]
ids = st.sampled_from([1, 2, "1", 1.0, None, ""])
values = st.one_of(ids, st.lists(ids, max_size=2))
inputs = st.fixed_dictionaries({}, optional={"o": values, "t": st.sampled_from(["p", "q", "pq", "x"])})
outputs = st.one_of(
    st.none(),
    st.sampled_from(["plain", '{"o": 1}', "[1]", "id: 2", "1"]),
    st.fixed_dictionaries({}, optional={"o": values, "ok": st.sampled_from([True, False, 1, None])}),
)
conditions = st.one_of(
    st.fixed_dictionaries({"path": st.sampled_from(["$.o", "$.o[*]"]), "equals": st.sampled_from([1, "1", 2])}),
    st.fixed_dictionaries({"path": st.sampled_from(["$.o", "$.o[*]"]), "not_equals": st.just(1)}),
    st.fixed_dictionaries({"path": st.just("$.o"), "gt": st.just(1)}),
    st.fixed_dictionaries({"path": st.just("$.o"), "exists": st.booleans()}),
)
names = st.sampled_from([*NAMES, *TOOLS])
_wheres = st.fixed_dictionaries({"tool": names, "where": st.lists(conditions, min_size=1, max_size=2)})
items = st.sampled_from([names, names, names, _wheres]).flatmap(lambda each: each)
lists = st.lists(items, min_size=1, max_size=2)
selectors = st.one_of(items, items, lists)
small = st.integers(1, 3)

whens = st.lists(
    st.sampled_from(
        [
            {"path": "$.user_role", "equals": "admin"},
            {"path": "$.user_role", "exists": True},
            {"path": "$.labels.env", "not_equals": "prod"},
            {"path": "$.tenant", "exists": False},
        ]
    ),
    max_size=2,
)
"""Conditions on the context; most are satisfied."""


def rule(type: str, needs: dict[str, Any], may: dict[str, Any] | None = None, *, key: bool = True) -> Any:
    """Rules of a family: its required fields, its optional ones, and those of every rule."""
    more: dict[str, Any] = {
        "action": st.sampled_from(["warn", "request_approval", "deny", "cancel", "halt"]),
        "when": whens,
    }
    if key:
        more["key"] = st.just("$.o")
    return st.fixed_dictionaries({"type": st.just(type), **needs}, optional={**(may or {}), **more})


binding = st.one_of(
    st.just({"path": "$.o"}),
    st.just({"path": "$.o", "prior_path": "$.o[*]"}),
    st.just({"path": "$.o", "prior_output_path": "$.o"}),
    st.just({"path": "$.o", "prior_output_regex": r"(\d)"}),
)
returned = st.one_of(
    st.fixed_dictionaries({"path": st.just("$.ok"), "equals": st.sampled_from([True, 1])}),
    st.fixed_dictionaries({"path": st.just("$.o"), "equals": st.just({"arg": "$.o"})}),
    st.just({"path": "$.o", "exists": True}),
)
priors = st.one_of(
    st.fixed_dictionaries(
        {"prior": selectors},
        optional={
            "same": st.lists(binding, min_size=1, max_size=2),
            "output": st.lists(returned, min_size=1, max_size=2),
            "pick": st.sampled_from(["latest", "any"]),
        },
    ),
    st.fixed_dictionaries({"prior": selectors, "must": st.just("started")}),
)
plain = st.sampled_from(["a", "b", ["a", "b"], "[bc]"])
arguments = st.fixed_dictionaries({"tool": plain, "where": st.just([{"path": "$.o", "equals": {"arg": "$.o"}}])})
bound = st.one_of(
    st.fixed_dictionaries({"prior": plain, "same": st.lists(binding, min_size=1, max_size=2)}),
    st.fixed_dictionaries({"prior": plain, "same": st.just([{"path": "$.o"}, {"path": "$.t"}])}),
    st.fixed_dictionaries({"prior": arguments}),
)
picks = st.sampled_from(["latest", "any"])
answered = st.fixed_dictionaries(
    {"prior": plain, "output": st.lists(returned, min_size=1, max_size=1), "pick": picks}
)
plain_requirements = st.one_of(
    priors,
    priors,
    st.fixed_dictionaries({"turns_gte": st.integers(0, 3)}),
    st.fixed_dictionaries({"user_said": st.just("1")}, optional={"in": st.sampled_from(["any", "latest"])}),
)
requirements = st.one_of(
    plain_requirements, st.fixed_dictionaries({"any_of": st.lists(plain_requirements, min_size=1, max_size=2)})
)
sources = st.one_of(
    st.just("user_message"),
    st.fixed_dictionaries({"tool": selectors, "path": st.sampled_from(["$.o", "$"])}),
    st.fixed_dictionaries({"tool": selectors, "regex": st.sampled_from([r"\d", r"id: (\d)"])}),
)


@st.composite
def loops(draw: Any) -> Any:
    """`loop` rules whose threshold fits in their window."""
    window = draw(st.integers(1, 5))
    made = draw(rule("loop", {"window": st.just(window), "threshold": st.integers(1, window)}, {"tool": selectors}))
    return made


@st.composite
def nets(draw: Any) -> Any:
    """Nets of three places; transitions without tools lead from `x` to `y` to `z`, so that they end."""
    places = st.lists(st.sampled_from("xyz"), max_size=2)
    tools = st.lists(plain.filter(lambda tool: isinstance(tool, str)), min_size=1, max_size=2) | lists
    inputs = st.lists(st.sampled_from("xyz"), min_size=1, max_size=2) | places
    named = st.fixed_dictionaries(
        {
            "inputs": inputs,
            "outputs": st.lists(st.sampled_from("xyz"), min_size=1, max_size=2) | places,
            "tools": tools,
            "deferred": st.booleans(),
            "type": st.sampled_from(["auto", "auto", "manual"]),
        }
    )
    silent = st.sampled_from([{"inputs": ["x"], "outputs": ["y"]}, {"inputs": ["y", "y"], "outputs": ["z"]}])
    transitions = [*draw(st.lists(named, min_size=2, max_size=4)), *draw(st.lists(silent, max_size=2))]
    made = {
        "name": draw(st.sampled_from(["n", "m"])),
        "places": ["x", "y", "z"],
        "initial_marking": {place: draw(st.sampled_from([0, 0, 1, 2])) for place in "xyz"},
        "transitions": [{"name": f"t{n}", **t} for n, t in enumerate(transitions)],
    }
    if draw(st.sampled_from([False, False, True])):
        made["free_tools"] = draw(lists)
    return made | draw(
        st.fixed_dictionaries({}, optional={"action": st.sampled_from(["warn", "deny"]), "when": whens})
    )


ofs = st.sampled_from(["started", "completed", "attempted"])
FAMILIES: dict[str, SearchStrategy[Any]] = {
    "allowlist": rule("allowlist", {"tools": lists}, key=False),
    "blocklist": rule("blocklist", {"tools": lists}, key=False),
    "require": rule("require", {"tool": selectors}, key=False),
    "count": rule("count", {"tool": selectors, "max": st.integers(0, 3), "of": ofs}),
    "count in a window": rule("count", {"tool": selectors, "max": small, "within_turns": small}, {"of": ofs}),
    "count at least": rule("count", {"tool": selectors, "min": small}, {"exact": st.integers(0, 2), "of": ofs}),
    "max_calls": rule("max_calls", {"tool": selectors, "max": st.integers(0, 2)}),
    "before": rule("before", {"first": selectors, "then": selectors},
        {"first_must": st.sampled_from(["started", "completed"])}),
    "immediately_before": rule("immediately_before", {"first": selectors, "then": selectors}),
    "after": rule("after", {"trigger": selectors, "then": selectors}, {"within": small}),
    "eventually": rule("eventually", {"tool": selectors, "within": small}, key=False),
    "never_after": rule("never_after", {"trigger": selectors, "forbidden": selectors}),
    "forbids_after": rule("forbids_after", {"tool": selectors, "tools": lists}),
    "sequence": rule("sequence", {"tools": st.lists(selectors, min_size=1, max_size=3)}, {"strict": st.booleans()}),
    "forbidden_sequence with gaps": rule("forbidden_sequence",
        {"sequence": st.lists(plain, min_size=2, max_size=3), "adjacency": st.just("any")}, key=False),
    "forbidden_sequence": rule("forbidden_sequence", {"sequence": st.lists(selectors, min_size=1, max_size=3)},
        {"adjacency": st.sampled_from(["strict", "any"])}),
    "precondition": rule("precondition", {"tool": selectors,
        "requires": st.lists(requirements, min_size=1, max_size=2)}),
    "precondition bound to one call": rule("precondition",
        {"tool": plain, "requires": st.lists(bound, min_size=1, max_size=1)}, key=False),
    "precondition on outputs": rule("precondition",
        {"tool": plain, "requires": st.lists(answered, min_size=1, max_size=1)}, key=False),
    "provenance": rule("provenance", {"tool": selectors, "path": st.sampled_from(["$.o", "$.t", "$"]),
        "from": st.lists(sources, min_size=1, max_size=2)}, {"except": st.just([2]), "extract": st.just(r"\w")}),
    "loop": loops(),
    "max_parallel": rule("max_parallel", {"max": st.integers(0, 2)}, {"tool": selectors}),
    "circuit_breaker": st.one_of(rule("circuit_breaker", {"consecutive": small}, {"total": small}),
        rule("circuit_breaker", {"total": small})),
}  # fmt: skip
"""Well-typed rules of each family; one with several evaluations has a name for each, the type first."""

tool_rules = st.one_of(st.fixed_dictionaries({"allow": lists}), st.fixed_dictionaries({"deny": lists}))


def policies(rules: SearchStrategy[Any], *, tools: Any = None, all_nets: Any = None) -> SearchStrategy[Any]:
    """One policy with some rules, tool rules and nets."""
    return st.fixed_dictionaries(
        {"name": st.just("p"), "rules": rules, "virtual_tools": st.just(VIRTUAL), "aliases": st.just(ALIASES)},
        optional={
            "on_violation": st.sampled_from(["warn", "request_approval", "deny", "cancel"]),
            **({"tool_rules": tools} if tools is not None else {}),
            **({"nets": all_nets} if all_nets is not None else {}),
        },
    )


_outcomes = st.sampled_from(["completed", "completed", "completed", "failed", "in flight", "refused by the provider"])
_calls = st.builds(
    Step,
    do=st.sampled_from(["ask", "ask", "ask", "saw"]),
    tool=st.sampled_from([*TOOLS, "a", "b", "A"]),
    input=inputs,
    next_turn=st.booleans(),
    outcome=_outcomes,
    output=outputs,
    approval=st.sampled_from(["granted", "denied", "left"]),
    sub=st.sampled_from([False, False, False, True]),
)
_ends = st.builds(
    Step, do=st.just("end"), n=st.integers(0, 3), outcome=st.sampled_from(["completed", "failed"]), output=outputs
)
_runs = st.builds(
    Step, do=st.just("run"), over=st.sampled_from(["completed", "failed", "cancelled", ""]), anew=st.booleans()
)
_words = st.builds(Step, do=st.just("say"), words=st.sampled_from(["pay 1", "x P", "no", "12", "2.", "1.5"]))
# `one_of` removes duplicates, `sampled_from` does not.
_steps = st.sampled_from([_calls] * 9 + [_ends] * 2 + [_words] * 2 + [_runs]).flatmap(lambda each: each)
sessions = st.lists(_steps, max_size=12)
contexts = st.builds(
    RunContext, user_role=st.sampled_from(["admin", "dev"]), labels=st.sampled_from([UNSET, {"env": "prod"}])
)


any_rule = st.one_of(*FAMILIES.values())
any_policy = policies(
    st.lists(any_rule, max_size=3), tools=st.lists(tool_rules, max_size=2), all_nets=st.lists(nets(), max_size=1)
)
stacks = st.lists(any_policy, min_size=1, max_size=3).map(
    lambda stack: [{**policy, "name": name} for policy, name in zip(stack, "pqr", strict=False)]
)

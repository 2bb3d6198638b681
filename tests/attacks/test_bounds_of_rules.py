"""The state of rules that a model can grow is bounded, and beyond the bound the rule denies: nothing is forgotten in
the model's favour.
"""

import json
from typing import Any

import pytest

from proctor.policies import Monitor, ToolCall, compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.rules.count import BEHIND
from proctor.policies.rules.machine import BOUND
from proctor.policies.rules.prior_calls import COMBINATIONS, PER_KEY


def ruled(*rules: dict[str, Any]) -> Monitor:
    return compile_policy(parse_policies({"name": "p", "on_violation": "deny", "rules": list(rules)})[0]).monitor()


def deploying(**prior: Any) -> Monitor:
    """`deploy` needs an earlier call of `test`, or of this prior."""
    requires = [{"prior": "test", **prior}]
    return ruled({"type": "precondition", "tool": "deploy", "requires": requires})


def ask(monitor: Monitor, tool: str, turn: int = 0, **input: Any) -> str:
    id = f"c{monitor.usage.input_tokens}"
    monitor.observe(ev.TokenUsageUpdated(input_tokens=1))  # a new id each time
    return monitor.propose(ToolCall(id=id, name=tool, input=input, turn=turn)).action


def done(monitor: Monitor, tool: str, output: Any = None, **input: Any) -> None:
    fields: dict[str, Any] = {"tool_call_id": f"d{monitor.usage.output_tokens}", "tool_name": tool}
    monitor.observe(ev.TokenUsageUpdated(output_tokens=1))
    monitor.observe(ev.ToolCallStarted(**fields, tool_input=input))
    monitor.observe(ev.ToolCallCompleted(**fields, tool_output=output))


def state_of(monitor: Monitor) -> dict[str, Any]:
    """The stored state of the only rule."""
    (state,) = json.loads(monitor.snapshot())["states"].values()
    return dict(state)


OK = [{"path": "$.ok", "equals": True}]
MANY = ["x", *(f"o{n}" for n in range(COMBINATIONS))]
DEEP: Any = "x"
for _ in range(300):
    DEEP = [DEEP]

LOST: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "a list of more values than are remembered": ({"same": [{"path": "$.of"}]}, {"of": MANY}, {"ok": False}),
    "two lists whose combinations are too many": ({"same": [{"path": "$.of"}, {"path": "$.within"}]},
        {"of": MANY[:100], "within": ["y", *MANY[:100]]}, {"ok": False}),
    "more captures than are remembered": ({"same": [{"path": "$.of", "prior_output_regex": r"#(\w+)"}]}, {},
        "x " + " ".join(f"#n{n}" for n in range(BOUND)) + " #x"),
}  # fmt: skip


@pytest.mark.parametrize(("binding", "later", "output"), LOST.values(), ids=LOST)
def test_a_later_call_beyond_a_bound_is_not_forgotten(
    binding: dict[str, Any], later: dict[str, Any], output: Any
) -> None:
    """The test of x succeeded, and later failed among very many values, so x can't be deployed."""
    output_holds = [{"path": "$", "contains": "passed"}] if "prior_output_regex" in str(binding) else OK
    monitor = deploying(output=output_holds, pick="latest", **binding)
    done(monitor, "test", "passed #x" if output_holds is not OK else {"ok": True}, of="x", within="y")

    assert ask(monitor, "deploy", of="x", within="y") == "allow"

    done(monitor, "test", output, **later)

    assert ask(monitor, "deploy", of="x", within="y") == "deny"
    assert monitor.narrow(["deploy"]) == []


def test_a_later_call_that_is_nested_too_deeply_is_not_forgotten() -> None:
    """`where` needs its input when the deploy is evaluated. Since the input can't be stored, the rule denies."""
    prior = {"tool": "test", "where": [{"path": "$.of", "equals": {"arg": "$.of"}}]}
    monitor = deploying(prior=prior, output=OK, pick="latest")
    done(monitor, "test", {"ok": True}, of="x")
    before = ask(monitor, "deploy", of="x")
    done(monitor, "test", {"ok": False}, of="x", more=DEEP)

    assert (before, ask(monitor, "deploy", of="x")) == ("allow", "deny")


def test_forgetting_a_call_beyond_a_bound_keeps_the_evidence_of_others() -> None:
    """With `pick: any`, forgetting can only remove evidence."""
    monitor = deploying(output=OK, pick="any", same=[{"path": "$.of"}])
    done(monitor, "test", {"ok": True}, of="x")
    done(monitor, "test", {"ok": True}, of=MANY)

    assert [ask(monitor, "deploy", of="x"), ask(monitor, "deploy", of="o1")] == ["allow", "deny"]


def test_with_pick_any_an_earlier_success_keeps_the_tool_visible() -> None:
    """Whatever the later calls returned."""
    output = [*OK, {"path": "$.of", "equals": {"arg": "$.of"}}]
    monitor = deploying(output=output, pick="any")
    done(monitor, "test", {"ok": True, "of": "x"})
    done(monitor, "test", {"ok": False, "of": "x"})

    assert (monitor.narrow(["deploy"]), ask(monitor, "deploy", of="x")) == (["deploy"], "allow")


@pytest.mark.parametrize(("count", "answer"), [(COMBINATIONS, "allow"), (COMBINATIONS + 1, "deny")])
def test_an_earlier_call_counts_up_to_its_bound_of_values(count: int, answer: str) -> None:
    """The bound is documented."""
    monitor = deploying(output=OK, pick="latest", same=[{"path": "$.of"}])
    done(monitor, "test", {"ok": True}, of=MANY[:count])

    assert ask(monitor, "deploy", of="x") == answer


AT_ONCE: dict[str, Any] = {"type": "max_parallel"}
IN_TWO: dict[str, Any] = {"type": "count", "tool": "x", "within_turns": 2}
ALLOW, DENY = "allow", "deny"
TURNS: dict[str, tuple[dict[str, Any], list[tuple[int, str]]]] = {
    "calls of a response are counted while it is one of the last 64": (
        AT_ONCE | {"max": 2}, [*((turn, ALLOW) for turn in range(1, 65)), (1, ALLOW), (1, DENY)]),
    "those of one that is long over are forgotten, so that one more is refused": (
        AT_ONCE | {"max": 1},
        [(1, ALLOW), (1, DENY), *((turn, ALLOW) for turn in range(2, 68)), (1, DENY), (66, DENY)]),
    "a call that says it is of an early response cannot be shown to be one of few": (
        IN_TWO | {"max": 1}, [(2, ALLOW), (2, DENY), *((turn, ALLOW) for turn in range(4, 60, 2)), (2, DENY)]),
    "what was used since a subagent's response, several behind, is known exactly": (
        IN_TWO | {"max": 4}, [(10, ALLOW), *[(10 + BEHIND, ALLOW)] * 2, (11, ALLOW), (11, DENY)]),
    "a window whose beginning is forgotten is not taken for empty": (
        IN_TWO | {"max": 40}, [*[(2, ALLOW)] * 40, *((turn, ALLOW) for turn in range(4, 60, 4)), (2, DENY)]),
}  # fmt: skip
"""The decisions on calls of `x`, with their turns."""


@pytest.mark.parametrize(("rule", "answers"), TURNS.values(), ids=TURNS)
def test_no_call_is_counted_again_in_a_turn_or_a_window(rule: dict[str, Any], answers: list[tuple[int, str]]) -> None:
    """The calls of a number of turns are remembered. In an older turn, no call is allowed."""
    monitor = ruled(rule)

    assert [(turn, ask(monitor, "x", turn)) for turn, _ in answers] == answers


def test_the_state_for_one_value_is_bounded() -> None:
    """However often a model repeats the prerequisite."""
    monitor = deploying(output=OK, same=[{"path": "$.of"}])
    kept = []
    for _ in range(2 * PER_KEY):
        done(monitor, "test", {"ok": True}, of="x")
        kept.append(len(state_of(monitor)["priors"]["0"]["items"]))

    assert max(kept) == PER_KEY


def test_of_many_earlier_calls_for_one_value_the_oldest_are_forgotten() -> None:
    """The latest failed, so it decides, however many succeeded before."""
    monitor = deploying(output=OK, same=[{"path": "$.of"}])
    for _ in range(PER_KEY):
        done(monitor, "test", {"ok": True}, of="x")
    before = ask(monitor, "deploy", of="x")
    done(monitor, "test", {"ok": False}, of="x")

    assert (before, ask(monitor, "deploy", of="x")) == ("allow", "deny")


def test_the_order_of_calls_is_kept_only_for_values_with_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can report started calls that were never evaluated."""
    monkeypatch.setattr("proctor.policies.rules.per_key.BOUND", 3)
    monitor = ruled({"type": "after", "trigger": "x", "then": "y", "key": "$.of", "id": "r"})
    for n in range(6):
        done(monitor, "x", of=f"v{n}")

    assert {name: len(kept) for name, kept in state_of(monitor).items()} == {"rows": 3, "counts": 3}


def test_beyond_the_bound_another_value_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own call is denied, and the state of the other values stays."""
    monkeypatch.setattr("proctor.policies.rules.prior_calls.BOUND", 3)
    monitor = deploying(same=[{"path": "$.of"}])
    for of in ("a", "b", "c", "d", "a", "d"):
        done(monitor, "test", of=of)

    assert [ask(monitor, "deploy", of=of) for of in ("a", "b", "c", "d")] == ["allow"] * 3 + ["deny"]

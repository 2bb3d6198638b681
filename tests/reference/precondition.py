"""`precondition`: what must have happened before a call, for the same values."""

import json
import re
from typing import Any

from .selecting import at, holds, ids, meets, text
from .trace import Call, Rule, World


def precondition(rule: Rule, world: World, call: Call) -> bool:
    """Violated by a call with an unsatisfied requirement."""
    named = meets(rule["tool"], call, world, permits=False)
    return named and not all(_met(requirement, world, call) for requirement in rule["requires"])


def _met(requirement: Any, world: World, call: Call) -> bool:
    if "any_of" in requirement:
        return any(_met(inner, world, call) for inner in requirement["any_of"])
    if "turns_gte" in requirement:
        return bool(call.turn - 1 >= requirement["turns_gte"])
    if "user_said" in requirement:
        texts = world.user_texts[-1:] if requirement.get("in") == "latest" else world.user_texts
        return any(re.search(requirement["user_said"], words) for words in texts)
    return _prior(requirement, world, call)


def _prior(requirement: Any, world: World, call: Call) -> bool:
    past = world.started() if requirement.get("must") == "started" else world.completed()
    bound = [
        earlier
        for earlier in past
        if meets(_spelt(requirement["prior"], call), earlier, world, permits=True)
        and all(_bound(same, earlier, call) for same in requirement.get("same", ()))
    ]
    if requirement.get("pick", "latest") == "latest":
        bound = bound[-1:]
    return any(_returned(requirement.get("output", ()), earlier, call) for earlier in bound)


def _spelt(prior: Any, call: Call) -> Any:
    """A selector with the evaluated call's arguments for `{arg: path}`."""
    if not isinstance(prior, dict):
        return prior
    # Input values are compared loosely anyway, so one form of the argument is enough.
    where = [_alternatives(condition, call)[0] for condition in prior.get("where", ())]
    return {**prior, "where": where}


def _bound(same: Any, earlier: Call, call: Call) -> bool:
    """Every value of this call is one of that call's, and there is one."""
    if "prior_output_regex" in same:
        written = earlier.output if isinstance(earlier.output, str) else json.dumps(earlier.output)
        theirs = re.findall(same["prior_output_regex"], written)
    elif "prior_output_path" in same:
        theirs = ids(same["prior_output_path"], output_of(earlier))
    else:
        theirs = ids(same.get("prior_path", same["path"]), earlier.input)
    ours = ids(same["path"], call.input)
    return bool(ours) and all(value in theirs for value in ours)


def _returned(conditions: Any, earlier: Call, call: Call) -> bool:
    """Outputs are compared strictly, a call's argument as its number and as its text."""
    given = [_alternatives(condition, call) for condition in conditions]
    return all(
        any(holds(spelt, output_of(earlier), permits=True, loose=False) for spelt in alternatives)
        for alternatives in given
    )


def _alternatives(condition: Any, call: Call) -> list[Any]:
    """A condition with the evaluated call's arguments for `{arg: path}`; without a value it is never satisfied."""
    operand = condition.get("equals")
    if not isinstance(operand, dict):
        return [condition]
    found = [spelt for value in at(operand["arg"], call.input) for spelt in _ways(value)]
    return [{**condition, "equals": value} for value in found] or [{"path": "$.none", "exists": True}]


def _ways(value: Any) -> list[Any]:
    """A scalar unchanged, as its number and as its text."""
    if isinstance(value, str) and re.fullmatch(r"\d+", value):
        return [value, int(value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value, text(value)]
    return [value]


def output_of(call: Call) -> Any:
    """A tool's output as paths see it: text that is a JSON object or array is parsed."""
    try:
        parsed = json.loads(call.output) if isinstance(call.output, str) else call.output
    except ValueError:
        return call.output
    return parsed if isinstance(parsed, dict | list) or not isinstance(call.output, str) else call.output

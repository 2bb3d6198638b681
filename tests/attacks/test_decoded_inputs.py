"""The gate evaluates the input that the tool gets, however the model encodes its arguments."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

import framework_bench
import pytest

from proctor.policies import parse_policies
from proctor.policies.events import ToolCallFailed, ToolCallStarted
from proctor.supervisor import MemoryStore, run_once

pydantic = pytest.importorskip("pydantic", reason="needs a framework: pip install '.[all]'")
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

Name = Annotated[str, pydantic.BeforeValidator(lambda text: text.strip().lower())]
"""A spelling that is rewritten before the tool gets it."""

POLICY = """
name: p
tool_rules:
  - deny: [{tool: pay, where: [{path: $.amount, gt: 100}]}]
    action: deny
  - deny: [{tool: pay, where: [{path: $.urgent, equals: true}]}]
    action: deny
  - deny: [{tool: pay, where: [{path: $.to, equals: mallory}]}]
    action: deny
"""
REFUSED = {
    "not a number": '{"amount": NaN}',
    "infinity": '{"amount": Infinity}',
    "minus infinity": '{"amount": -Infinity}',
    "beyond a float": '{"amount": 1e400}',
    "text of infinity": '{"amount": "inf"}',
    "text with blanks": '{"amount": " 1300 "}',
    "text with an underscore": '{"amount": "1_300"}',
    "a word for true": '{"amount": 1, "urgent": "yes"}',
    "a letter for true": '{"amount": 1, "urgent": "t"}',
    "a number for true": '{"amount": 1, "urgent": 1}',
    "a default that is denied": "{}",
    "a key twice": '{"amount": 1, "amount": 1300}',
    "a key twice, the other way": '{"amount": 1300, "amount": 1}',
    "a validator that rewrites": '{"amount": 1, "to": "  MALLORY "}',
    "a list": "[1300]",
    "text that is no JSON": "{amount: 1300}",
    "a number of another script": '{"amount": "\uff11\uff13\uff10\uff10"}',
    "exponent": '{"amount": 13e2}',
}
PLAIN = ['{"amount": 13}', '{"amount": " 13 "}', '{"amount": "1_3"}', '{"amount": 13, "urgent": "no", "to": " BOB "}']


Paid: TypeAlias = list[tuple[Any, ...]]
"""The inputs that the tool was called with."""
FRAMEWORKS = [framework_bench.openai_agents, framework_bench.pydantic_ai, framework_bench.langchain]
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda made: made.__name__)


async def paid_by(framework: Any, arguments: str, store: MemoryStore) -> Paid:
    """The payments of a real agent after one call with these arguments; langchain models return parsed ones."""
    paid: Paid = []

    def pay(amount: float = 1300.0, urgent: bool = False, to: Name = "bob") -> str:
        """Pay."""
        paid.append((amount, urgent, to))
        return "paid"

    given: Any = arguments
    if framework is framework_bench.langchain:
        with suppress(ValueError):
            given = json.loads(arguments)
        if not isinstance(given, dict):
            return []
    agent = framework([("pay", given)], functions=[pay])
    await run_once(agent, "pay", policies=parse_policies(POLICY), store=store)
    return paid


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
@each_framework
async def test_no_spelling_of_an_amount_evades_a_condition(framework: Any, arguments: str) -> None:
    """Whatever the tool was called with, the gate has evaluated exactly that, and it satisfies the condition."""
    store = MemoryStore()
    found = await paid_by(framework, arguments, store)

    assert [paid for paid in found if not paid[0] <= 100 or paid[1] or paid[2] == "mallory"] == []
    assert [paid for paid in found if paid not in await recorded_inputs(store)] == []


@pytest.mark.parametrize("arguments", PLAIN)
@each_framework
async def test_an_allowed_amount_is_paid_and_evaluated_as_the_tool_gets_it(framework: Any, arguments: str) -> None:
    """So the attacks above fail because of their amounts. Defaults are evaluated and recorded."""
    store = MemoryStore()

    assert await paid_by(framework, arguments, store) == [(13.0, False, "bob")]
    assert await recorded_inputs(store) == [(13.0, False, "bob")]


async def recorded_inputs(store: MemoryStore) -> Paid:
    """The inputs of the calls that ran, according to the event log."""
    [run] = await store.runs()
    found = [event async for event in store.read(run.session_id)]
    failed = {event.tool_call_id for event in found if isinstance(event, ToolCallFailed)}
    inputs = [
        event.tool_input for event in found if isinstance(event, ToolCallStarted) and event.tool_call_id not in failed
    ]
    return [(each.get("amount"), each.get("urgent"), each.get("to")) for each in inputs]

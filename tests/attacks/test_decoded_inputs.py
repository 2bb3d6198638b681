"""What the gate judges is what the tool gets, however the model writes its arguments."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from proctor.adapters import OpenAIAgentsAdapter, PydanticAIAdapter, supervise
from proctor.policies import Policy, parse_policies
from proctor.policies.events import ToolCallFailed, ToolCallStarted
from proctor.supervisor import MemoryStore, run_once

pydantic = pytest.importorskip("pydantic", reason="needs a framework: pip install '.[all]'")
pytestmark = pytest.mark.anyio

Name = Annotated[str, pydantic.BeforeValidator(lambda text: text.strip().lower())]
"""A name that the tool gets as it is rewritten."""

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


@pytest.fixture
def anyio_backend() -> str:
    """The frameworks run on asyncio only."""
    return "asyncio"


def open_policies() -> list[Policy]:
    """The policy of the attacks."""
    return parse_policies(POLICY)


class Till:
    """Where the money goes: what the tool was really called with."""

    def __init__(self) -> None:
        self.paid: list[tuple[Any, ...]] = []

    def pay(self, amount: float, urgent: bool, to: str) -> str:
        """Pay."""
        self.paid.append((amount, urgent, to))
        return "paid"


async def with_openai_agents(till: Till, arguments: str, *, store: MemoryStore) -> None:
    """One call with these arguments by a real agent of the OpenAI Agents SDK, its model a script."""
    pytest.importorskip("openai", reason="needs the OpenAI Agents SDK: pip install '.[openai-agents]'")
    from agents import Agent, ModelResponse, Usage, function_tool
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        responses = 0

        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            self.responses += 1
            call = ResponseFunctionToolCall(type="function_call", call_id="1", name="pay", arguments=arguments)
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            message = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[call if self.responses == 1 else message], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("nobody streams here")

    @function_tool(strict_mode=False)
    def pay(amount: float = 1300.0, urgent: bool = False, to: Name = "bob") -> str:
        return till.pay(amount, urgent, to)

    agent = Agent(name="payer", model=Scripted(), tools=[pay])
    await run_once(OpenAIAgentsAdapter(agent), "pay", policies=open_policies(), store=store)


async def with_pydantic_ai(till: Till, arguments: str, *, store: MemoryStore) -> None:
    """One call with these arguments by a real agent of pydantic-ai."""
    pytest.importorskip("pydantic_ai", reason="needs pydantic-ai: pip install '.[pydantic-ai]'")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def respond(messages: Any, info: Any) -> ModelResponse:
        first = not any(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[ToolCallPart("pay", arguments, tool_call_id="1") if first else TextPart("done")])

    agent = Agent(FunctionModel(respond), retries=0)

    @agent.tool_plain
    def pay(amount: float = 1300.0, urgent: bool = False, to: Name = "bob") -> str:
        return till.pay(amount, urgent, to)

    try:
        await run_once(PydanticAIAdapter(agent), "pay", policies=open_policies(), store=store)
    except Exception:  # the framework gives up on arguments it cannot read; what counts is what was paid
        assert till.paid == []


async def with_langchain(till: Till, arguments: str, *, store: MemoryStore) -> None:
    """One call with these arguments by a real agent of langchain; its models hand over parsed arguments."""
    pytest.importorskip("langchain", reason="needs langchain: pip install '.[langchain]'")
    import json

    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from proctor.adapters.agents.langchain import Supervision

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self

    @tool
    def pay(amount: float = 1300.0, urgent: bool = False, to: Name = "bob") -> str:
        """Pay."""
        return till.pay(amount, urgent, to)

    try:
        parsed = json.loads(arguments)
        assert isinstance(parsed, dict)
    except (ValueError, AssertionError):
        return  # no model of langchain hands such a call over
    script = iter([AIMessage("", tool_calls=[{"id": "1", "name": "pay", "args": parsed}]), AIMessage("done")])
    async with supervise(open_policies(), prompt="pay", store=store) as gate:
        agent = create_agent(Scripted(messages=script), tools=[pay], middleware=[Supervision(gate)])
        messages: Any = {"messages": [("user", "pay")]}
        await agent.ainvoke(messages)


FRAMEWORKS = [with_openai_agents, with_pydantic_ai, with_langchain]


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_no_spelling_of_an_amount_gets_past_a_condition(framework: Any, arguments: str) -> None:
    """Whatever the tool was called with, the gate has judged exactly that, and the condition holds of it."""
    till, store = Till(), MemoryStore()
    await framework(till, arguments, store=store)

    assert [paid for paid in till.paid if not paid[0] <= 100 or paid[1] or paid[2] == "mallory"] == []
    assert [paid for paid in till.paid if paid not in await judged(store)] == []


@pytest.mark.parametrize("arguments", PLAIN)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_allowed_amount_is_paid_and_judged_as_the_tool_got_it(framework: Any, arguments: str) -> None:
    """The attacks above fail for what they ask for, not because nothing runs; defaults are judged and recorded."""
    till, store = Till(), MemoryStore()
    await framework(till, arguments, store=store)

    assert till.paid == [(13.0, False, "bob")]
    assert await judged(store) == [(13.0, False, "bob")]


async def judged(store: MemoryStore) -> list[tuple[Any, ...]]:
    """The inputs that the record says ran."""
    [run] = await store.runs()
    found = [event async for event in store.read(run.session_id)]
    failed = {event.tool_call_id for event in found if isinstance(event, ToolCallFailed)}
    inputs = [
        event.tool_input for event in found if isinstance(event, ToolCallStarted) and event.tool_call_id not in failed
    ]
    return [(each.get("amount"), each.get("urgent"), each.get("to")) for each in inputs]

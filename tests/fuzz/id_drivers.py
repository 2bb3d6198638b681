"""Each adapter that lives in this process, playing a script of calls whose ids come again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from proctor.adapters import FunctionAdapter, LoopGate, ReplayAdapter, ScriptedAdapter, ShellAdapter, ToolRefused
from proctor.policies import Policy
from proctor.policies.events import Event, MessageReceived, ToolCallCompleted, ToolCallRequested, TurnStarted
from proctor.policies.events import ToolCallStarted as Started
from proctor.supervisor.ports.adapter import Adapter, Launch

from .call_ids import Driver, Played, ProposedCall, Ran, Responses, command, of_commands, supervised
from .call_ids import policies as policies_of
from .id_wires import hook, proxy

NAMES: Final = ("act", "once", "forbidden")


def tools(ran: Ran) -> list[Callable[[int], str]]:
    """Functions that keep what they did."""

    def tool(name: str) -> Callable[[int], str]:
        def run(n: int) -> str:
            ran.append((name, n))
            return "done"

        run.__name__, run.__doc__ = name, "Do it."
        return run

    return [tool(name) for name in NAMES]


async def function(script: Responses, policies: list[Policy]) -> Played:
    """A loop of one's own, the calls of a response side by side."""
    ran: Ran = []

    async def loop(gate: LoopGate, prompt: str) -> str:
        async def call(wanted: ProposedCall) -> None:
            async def act(given: dict[str, Any]) -> str:
                await anyio.lowlevel.checkpoint()
                ran.append((wanted.tool, given["n"]))
                return "done"

            with suppress(ToolRefused):
                await gate.call(wanted.tool, {"n": wanted.n}, act, call_id=wanted.id)

        for response in script:
            await gate.turn()
            async with anyio.create_task_group() as tasks:
                for wanted in response:
                    tasks.start_soon(call, wanted)
        return "done"

    return await supervised([FunctionAdapter(loop)], policies, ran)


async def scripted(script: Responses, policies: list[Policy]) -> Played:
    """Each response is a run of the session, in which its ids may not come again."""
    ran: Ran = []
    own = {tool.__name__: tool for tool in tools(ran)}
    adapters: list[Adapter] = []
    for response in script:
        once = {wanted.id: wanted for wanted in response}.values()
        steps = [{"call": each.tool, "input": {"n": each.n}, "id": each.id} for each in once]
        adapters.append(ScriptedAdapter({"steps": [{"parallel": steps}] if len(steps) > 1 else steps}, tools=own))
    return await supervised(adapters, policies, ran)


async def replay(script: Responses, policies: list[Policy]) -> Played:
    """A recording in which ids come again; nothing runs, so that what counts as run is what is told of it."""
    events: list[Event] = []
    for turn, response in enumerate(script, 1):
        events.append(TurnStarted(turn=turn))
        for wanted in response:
            call: dict[str, Any] = {"tool_call_id": wanted.id, "tool_name": wanted.tool}
            given = {**call, "tool_input": {"n": wanted.n}, "turn": turn}
            events += [ToolCallRequested(**given), Started(**given), ToolCallCompleted(**call, tool_output="done")]
    events.append(MessageReceived(content="done"))
    played = await supervised([ReplayAdapter(events)], policies, [])
    started = [event for event in played.events if isinstance(event, Started)]
    played.ran = [(event.tool_name, event.tool_input["n"]) for event in started]
    return played


async def pydantic_ai(script: Responses, policies: list[Policy]) -> Played:
    """The framework's own agent."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from proctor.adapters import PydanticAIAdapter

    ran: Ran = []

    async def respond(messages: list[Any], info: Any) -> ModelResponse:
        n = sum(isinstance(message, ModelResponse) for message in messages)
        if n >= len(script):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[ToolCallPart(each.tool, {"n": each.n}, tool_call_id=each.id) for each in script[n]]
        )

    agent: Any = Agent(FunctionModel(respond, model_name="m"), tools=tools(ran), retries=20)
    return await supervised([PydanticAIAdapter(agent)], policies, ran)


async def openai_agents(script: Responses, policies: list[Policy]) -> Played:
    """The SDK's own agent."""
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from proctor.adapters import OpenAIAgentsAdapter

    ran: Ran = []
    left = list(script)

    class Scripted(Model):
        model = "m"

        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            return ModelResponse(output=self._items(), usage=Usage(requests=1), response_id=None)

        def _items(self) -> list[Any]:
            if left:
                return [
                    ResponseFunctionToolCall(
                        type="function_call", call_id=each.id, name=each.tool, arguments=json.dumps({"n": each.n})
                    )
                    for each in left.pop(0)
                ]
            text_part = ResponseOutputText(type="output_text", text="done", annotations=[])
            return [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text_part]
                )
            ]

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    made: list[Any] = [function_tool(each) for each in tools(ran)]
    adapter = OpenAIAgentsAdapter(Agent(name="worker", model=Scripted(), tools=made), max_turns=40)
    return await supervised([adapter], policies, ran)


async def langchain(script: Responses, policies: list[Policy]) -> Played:
    """An agent of langchain in a loop."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from proctor.adapters.agents.langchain import Supervision

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self

    ran: Ran = []
    wanted = [[{"id": each.id, "name": each.tool, "args": {"n": each.n}} for each in response] for response in script]
    messages = [AIMessage("", tool_calls=calls) for calls in wanted]
    made = [tool(each) for each in tools(ran)]

    async def loop(gate: LoopGate, prompt: str) -> str:
        model = Scripted(messages=iter([*messages, AIMessage("done")]))
        agent: Any = create_agent(model, tools=made, middleware=[Supervision(gate)])
        ended = await agent.ainvoke({"messages": [("user", prompt)]}, {"recursion_limit": 100})
        return str(ended["messages"][-1].text)

    return await supervised([FunctionAdapter(loop, tools=made)], policies, ran)


async def shell(script: Responses, policies: list[Policy]) -> Played:
    """Each call is a command line that is a run of the session; every run's call has the same id."""
    with tempfile.TemporaryDirectory() as folder:
        adapters: list[Adapter] = [Line(folder, command(call)) for response in script for call in response]
        played = await supervised(adapters, policies_of(commands=True), [])
        return of_commands(Path(folder) / "log", played.events)


class Line(ShellAdapter):
    """One command line, whatever the prompt."""

    def __init__(self, folder: str, line: str) -> None:
        super().__init__(cwd=folder)
        self._line = line

    def open(self, launch: Launch) -> Any:
        return super().open(msgspec.structs.replace(launch, prompt=self._line))


IN_PROCESS: Final[dict[str, Driver]] = {
    "function": function,
    "hook": hook,
    "proxy": proxy,
    "langchain": langchain,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "replay": replay,
    "scripted": scripted,
    "shell": shell,
}

"""`import framework_bench`: real agents of frameworks that script acts, with tools named as such tools mostly are."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import pytest

from proctor.supervisor.ports.adapter import Adapter

Call: TypeAlias = tuple[str, dict[str, Any]]
"""A tool's name and its input."""

MODEL: Final = "gpt-5.5"


def run_command(cmd: str) -> str:
    """Run a command line, as the client's own tools do."""
    done = subprocess.run(["bash", "-c", cmd], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def write_file(file_path: str, text: str = "x") -> str:
    """Write a file."""
    Path(file_path).write_text(text)
    return "written"


def read_file(file_name: str) -> str:
    """Read a file."""
    return Path(file_name).read_text()


def web_fetch(uri: str) -> str:
    """Answer for the network."""
    return f"a page of {uri}"


TOOLS: Final[list[Callable[..., str]]] = [run_command, write_file, read_file, web_fetch]


def called(act: tuple[str, str]) -> Call:
    """The call that an act is: these agents call their tools so."""
    kind, what = act
    names = {"bash": ("run_command", "cmd"), "write": ("write_file", "file_path")}
    names |= {"read": ("read_file", "file_name"), "fetch": ("web_fetch", "uri")}
    tool, key = names[kind]
    return tool, {key: what}


def langchain(calls: Sequence[Call], used: tuple[int, int] = (100, 20), endless: bool = False) -> Adapter:
    """An agent of langchain with a scripted model, in a loop that says which tools it has."""
    return _langchain(calls, used, endless, names_its_tools=True)


def langchain_untold(calls: Sequence[Call], used: tuple[int, int] = (100, 20), endless: bool = False) -> Adapter:
    """The same in a loop that does not say."""
    return _langchain(calls, used, endless, names_its_tools=False)


def _langchain(calls: Sequence[Call], used: tuple[int, int], endless: bool, *, names_its_tools: bool) -> Adapter:
    pytest.importorskip("langchain", reason="langchain is not installed: pip install '.[langchain]'")
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from proctor.adapters import FunctionAdapter, LoopGate
    from proctor.adapters.agents.langchain import Supervision

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **more: Any) -> Any:
            return self

        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            if endless:
                await anyio.sleep_forever()
            return await super()._agenerate(*args, **kwargs)

    spent = {"input_tokens": used[0], "output_tokens": used[1], "total_tokens": sum(used)}

    def response(text: str, *tool_calls: Any) -> AIMessage:
        metadata = {"model_name": MODEL}
        return AIMessage(text, tool_calls=list(tool_calls), usage_metadata=spent, response_metadata=metadata)

    script = [response("", {"id": f"c{n}", "name": name, "args": args}) for n, (name, args) in enumerate(calls)]
    tools = [tool(each) for each in TOOLS]

    async def loop(gate: LoopGate, prompt: str) -> str:
        model = Scripted(messages=iter([*script, response("done")]))
        agent: Any = create_agent(model, tools=tools, middleware=[Supervision(gate)])
        ended = await agent.ainvoke({"messages": [("user", prompt)]}, {"recursion_limit": 200})
        return str(ended["messages"][-1].text)

    return FunctionAdapter(loop, tools=tools if names_its_tools else None, model=MODEL)


def pydantic_ai(calls: Sequence[Call], used: tuple[int, int] = (100, 20), endless: bool = False) -> Adapter:
    """An agent of pydantic-ai with a scripted model."""
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    from proctor.adapters import PydanticAIAdapter

    async def respond(messages: list[Any], info: Any) -> ModelResponse:
        if endless:
            await anyio.sleep_forever()
        n = sum(isinstance(message, ModelResponse) for message in messages)
        part = ToolCallPart(*calls[n], tool_call_id=f"c{n}") if n < len(calls) else TextPart("done")
        return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=used[0], output_tokens=used[1]))

    return PydanticAIAdapter(Agent(FunctionModel(respond, model_name=MODEL), tools=TOOLS))


def openai_agents(calls: Sequence[Call], used: tuple[int, int] = (100, 20), endless: bool = False) -> Adapter:
    """An agent of the OpenAI Agents SDK with a scripted model."""
    pytest.importorskip("agents", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'")
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from proctor.adapters import OpenAIAgentsAdapter

    class Scripted(Model):
        model = MODEL

        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            if endless:
                await anyio.sleep_forever()
            given = [] if isinstance(input, str) else input
            n = sum(item.get("type") == "function_call" for item in given)
            total = Usage(requests=1, input_tokens=used[0], output_tokens=used[1], total_tokens=sum(used))
            return ModelResponse(output=[self._item(n)], usage=total, response_id=None)

        def _item(self, n: int) -> Any:
            if n < len(calls):
                name, arguments = calls[n]
                return ResponseFunctionToolCall(
                    type="function_call", call_id=f"c{n}", name=name, arguments=json.dumps(arguments)
                )
            text_part = ResponseOutputText(type="output_text", text="done", annotations=[])
            return ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text_part]
            )

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    tools: list[Any] = [function_tool(each) for each in TOOLS]
    return OpenAIAgentsAdapter(Agent(name="worker", model=Scripted(), tools=tools), max_turns=40)

"""`import framework_bench`: real framework agents with scripted acts, whose tools have common names."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import pytest

from proctor.supervisor.ports.adapter import Adapter

Call: TypeAlias = tuple[str, Any]
"""A tool's name and its input, or the text that a model writes for one."""
Response: TypeAlias = list[tuple[str, str, Any]]
"""Calls that are requested together, by their ids."""
Script: TypeAlias = Sequence[Call | Response]
"""A model's request; a single call has its own id."""

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
    """A response without the network."""
    return f"a page of {uri}"


Functions: TypeAlias = Sequence[Callable[..., str]]
TOOLS: Final[Functions] = [run_command, write_file, read_file, web_fetch]


def called(act: tuple[str, str]) -> Call:
    """The call of an act by these agents' tools."""
    kind, what = act
    names = {"bash": ("run_command", "cmd"), "write": ("write_file", "file_path")}
    names |= {"read": ("read_file", "file_name"), "fetch": ("web_fetch", "uri")}
    tool, key = names[kind]
    return tool, {key: what}


def responses(script: Script) -> list[Response]:
    """The responses of a script."""
    return [each if isinstance(each, list) else [(f"c{n}", *each)] for n, each in enumerate(script)]


def langchain(
    script: Script, used: tuple[int, int] = (100, 20), endless: bool = False, functions: Functions = TOOLS
) -> Adapter:
    """A langchain agent with a scripted model, in a loop that declares its tools."""
    return _langchain(script, used, endless, functions, names_its_tools=True)


def langchain_untold(script: Script, used: tuple[int, int] = (100, 20), endless: bool = False) -> Adapter:
    """The same in a loop that does not declare them."""
    return _langchain(script, used, endless, TOOLS, names_its_tools=False)


def _langchain(
    script: Script, used: tuple[int, int], endless: bool, functions: Functions, *, names_its_tools: bool
) -> Adapter:
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

    def message(text: str, response: Response) -> AIMessage:
        calls = [{"id": id, "name": name, "args": args} for id, name, args in response]
        metadata = {"model_name": MODEL}
        return AIMessage(text, tool_calls=calls, usage_metadata=spent, response_metadata=metadata)

    messages = [*(message("", response) for response in responses(script)), message("done", [])]
    tools = [tool(each) for each in functions]

    async def loop(gate: LoopGate, prompt: str) -> str:
        model = Scripted(messages=iter(messages))
        agent: Any = create_agent(model, tools=tools, middleware=[Supervision(gate)])
        ended = await agent.ainvoke({"messages": [("user", prompt)]}, {"recursion_limit": 200})
        return str(ended["messages"][-1].text)

    return FunctionAdapter(loop, tools=tools if names_its_tools else None, model=MODEL)


def pydantic_ai(
    script: Script, used: tuple[int, int] = (100, 20), endless: bool = False, functions: Functions = TOOLS
) -> Adapter:
    """A pydantic-ai agent with a scripted model."""
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed: pip install '.[pydantic-ai]'")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    from proctor.adapters import PydanticAIAdapter

    async def respond(messages: list[Any], info: Any) -> ModelResponse:
        if endless:
            await anyio.sleep_forever()
        left = responses(script)[sum(isinstance(message, ModelResponse) for message in messages) :]
        parts = (
            [ToolCallPart(name, args, tool_call_id=id) for id, name, args in left[0]] if left else [TextPart("done")]
        )
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=used[0], output_tokens=used[1]))

    return PydanticAIAdapter(Agent(FunctionModel(respond, model_name=MODEL), tools=functions, retries=20))


def openai_agents(
    script: Script, used: tuple[int, int] = (100, 20), endless: bool = False, functions: Functions = TOOLS
) -> Adapter:
    """The adapter of `openai_agent`."""
    agent = openai_agent(script, used, endless, functions)
    from proctor.adapters import OpenAIAgentsAdapter

    return OpenAIAgentsAdapter(agent, max_turns=40)


def openai_agent(
    script: Script, used: tuple[int, int] = (100, 20), endless: bool = False, functions: Functions = TOOLS
) -> Any:
    """An agent of the OpenAI Agents SDK with a scripted model, which may omit inputs of given functions."""
    pytest.importorskip(
        "agents.exceptions", reason="the OpenAI Agents SDK is not installed: pip install '.[openai-agents]'"
    )
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        model = MODEL
        left = responses(script)

        async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
            if endless:
                await anyio.sleep_forever()
            if isinstance(input, str) or not any(item.get("type") == "function_call" for item in input):
                self.left = responses(script)
            items = [self._call(*each) for each in self.left.pop(0)] if self.left else [self._done()]
            total = Usage(requests=1, input_tokens=used[0], output_tokens=used[1], total_tokens=sum(used))
            return ModelResponse(output=items, usage=total, response_id=None)

        def _call(self, id: str, name: str, arguments: Any) -> Any:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            return ResponseFunctionToolCall(type="function_call", call_id=id, name=name, arguments=text)

        def _done(self) -> Any:
            text_part = ResponseOutputText(type="output_text", text="done", annotations=[])
            return ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text_part]
            )

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    tools: list[Any] = [function_tool(each, strict_mode=functions is TOOLS) for each in functions]
    return Agent(name="worker", model=Scripted(), tools=tools)

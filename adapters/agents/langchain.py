"""Agents of langchain and langgraph under `supervise`, as one middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from pydantic import BaseModel

from proctor.policies.events import Event
from proctor.policies.events.calls import same_input

from ..kit.call_book import ClientCall
from ..kit.client_tools import mcp_tool_name
from ..kit.values import to_jsonable
from .loop.gate import LoopGate, ToolRefused, is_forced


class Supervision(AgentMiddleware[Any, Any]):
    """Proposes every call of an agent's tools to a gate, and reports its turns and their usage.

    Put it last in `create_agent(middleware=[..., Supervision(gate)])`, so that the evaluated input is what runs, and
    run the agent with `ainvoke` or `astream`.

    Args:
        gate: the supervised run.
        narrow: offer the model only the tools that it could call now; calls of other tools are denied.
    """

    def __init__(self, gate: LoopGate, *, narrow: bool = True) -> None:
        super().__init__()
        self._gate = gate
        self._narrow = narrow

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Report a turn's usage before its calls are proposed."""
        await self._gate.turn()
        response = await handler(self._narrowed(request) if self._narrow else request)
        for message in getattr(response, "result", [response]):
            if isinstance(message, AIMessage):
                await self._report(message)
        return response

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Propose a call; the result of a denied one is the gate's text."""
        proposed = request.tool_call
        evaluated = evaluated_input(request.tool, proposed["args"])
        recorded = to_jsonable(evaluated)

        async def act(tool_input: dict[str, Any]) -> Any:
            args = proposed["args"] if same_input(tool_input, recorded) else tool_input
            result = await handler(request.override(tool_call={**proposed, "args": args}))
            if isinstance(result, ToolMessage) and result.status == "error":
                raise _FailedError(result)
            return result

        try:
            return await self._gate.call(proposed["name"], evaluated, act, call_id=proposed["id"])
        except ToolRefused as refusal:
            return ToolMessage(refusal.tell_model, tool_call_id=proposed["id"], name=proposed["name"], status="error")
        except _FailedError as failed:
            return failed.message

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Raises RuntimeError: a gate holds calls by waiting."""
        raise RuntimeError("run a supervised agent with `ainvoke` or `astream`")

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Raises RuntimeError: a gate holds calls by waiting."""
        raise RuntimeError("run a supervised agent with `ainvoke` or `astream`")

    def _narrowed(self, request: Any) -> Any:
        """The request without the tools that could not be called now; tools that the provider runs stay."""
        if is_forced(request.tool_choice):
            return request
        named = {getattr(tool, "name", None) for tool in request.tools}
        callable_now = set(self._gate.narrow([name for name in named if name is not None]))
        tools = [tool for tool in request.tools if getattr(tool, "name", None) in {None, *callable_now}]
        return request.override(tools=tools)

    async def _report(self, message: AIMessage) -> None:
        used: Any = message.usage_metadata
        if used:
            cached, spent = used.get("input_token_details", {}), used.get("output_token_details", {})
            await self._gate.usage(
                input_tokens=used["input_tokens"],
                output_tokens=used["output_tokens"],
                cache_read_tokens=cached.get("cache_read", 0),
                cache_write_tokens=cached.get("cache_creation", 0),
                reasoning_tokens=spent.get("reasoning", 0),
                model=message.response_metadata.get("model_name"),
            )
        if message.text:
            await self._gate.message(str(message.text))
        for event in provider_calls(message.content_blocks, self._gate):
            await self._gate.report(event)


def provider_calls(blocks: Iterable[Any], gate: LoopGate) -> Iterator[Event]:
    """The calls in a response that the model's provider ran itself, which cannot be held."""
    calls: dict[str, ClientCall] = {}
    for block in blocks:
        kind = block["type"]
        if kind in ("server_tool_call", "server_tool_call_chunk"):
            more = block.get("extras") or {}
            server = more.get("server_name") or more.get("server_label")
            name = mcp_tool_name(server, str(more.get("tool_name"))) if server else str(block.get("name"))
            call_id = str(block.get("id"))
            calls[call_id] = gate.calls.unasked(call_id, name, block.get("args"), gate.turn_number)
            yield calls[call_id].started()
        elif kind == "server_tool_result":
            call_id, output = str(block.get("tool_call_id")), to_jsonable(block.get("output"))
            call = calls.get(call_id) or gate.calls.unasked(call_id, "")
            yield call.ended(output, failed=block.get("status") == "error")


def evaluated_input(tool: Any, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments as a tool of langchain will get them: validated by its schema, defaults included. Those that do
    not fit, on which the tool fails, and those of a tool that is not known (None) are evaluated as they are.
    """
    schema = getattr(tool, "tool_call_schema", None)
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return args
    try:
        validated = schema.model_validate(args)
    except ValueError:
        return args
    kept = {name for name, field in schema.model_fields.items() if not field.is_required()}
    return {name: getattr(validated, name) for name in kept | validated.model_fields_set}


class _FailedError(Exception):
    """A tool's error that the framework has turned into a message."""

    def __init__(self, message: ToolMessage) -> None:
        super().__init__(str(message.text))
        self.message = message

"""The capability that gates the calls of one run and reports what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import SkipToolExecution
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.tools import RunContext, ToolDefinition

if TYPE_CHECKING:
    from .session import PydanticAISession


@dataclass
class Supervision(AbstractCapability[Any]):
    """Asks the gate before each call, after every other capability has had its say about the input."""

    session: PydanticAISession
    narrows: bool = False

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost: what is judged is what runs."""
        return CapabilityOrdering(position="innermost")

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """A response is about to be asked for."""
        await self.session.settle(ctx.usage)
        await self.session.begin_turn()
        return request_context

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """A response has come; what it used is judged before its calls are."""
        await self.session.responded(response)
        return response

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """The tools to offer."""
        if not self.narrows:
            return tool_defs
        callable_now = set(self.session.narrow([tool.name for tool in tool_defs]))
        return [tool for tool in tool_defs if tool.name in callable_now]

    async def before_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        """Ask the gate; a refused call gives the model the gate's text."""
        await self.session.settle(ctx.usage)
        allowed, given = await self.session.asked(call.tool_call_id, call.tool_name, args)
        if not allowed:
            raise SkipToolExecution(given)
        changed: dict[str, Any] = given
        return changed

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Report what came of a call that was allowed."""
        with self.session.calls.inside(call.tool_call_id):
            try:
                result = await handler(args)
            except SkipToolExecution as skipped:
                await self.session.calls.completed(call.tool_call_id, skipped.result)
                raise
            except BaseException as error:
                self.session.calls.failed(call.tool_call_id, error)
                raise
        await self.session.settle(ctx.usage)
        await self.session.calls.completed(call.tool_call_id, result)
        return result

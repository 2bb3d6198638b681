"""What an agent's own loop is supervised through."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

import anyio
from anyio.lowlevel import checkpoint

from proctor.policies.stream.calls import ToolCall, tell_model_default
from proctor.policies.stream.events import (
    Event,
    MessageReceived,
    MessageSent,
    RunCompleted,
    TokenUsageUpdated,
    TurnCompleted,
    TurnStarted,
)
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapters import Launch
from proctor.supervisor.run.foreign.isolation import tool_error

from ...kit.event_stream import EventStream
from ...kit.task_provider import TaskProvider
from ...kit.values.jsonable import is_finite, plain
from .calls import AllowedCalls
from .errors import ToolRefused
from .tools import OnRefusal, asking

P = ParamSpec("P")
T = TypeVar("T")


class LoopGate:
    """Reports what a loop says and uses, and holds its calls until they are decided.

    Every method that waits returns when the supervisor has processed the report; if the report ends the run, the
    loop is cancelled there.

    # INVARIANT: a call runs after the gate allowed it, with the input the gate answered with.
    """

    def __init__(self, launch: Launch, stream: EventStream, provider: TaskProvider) -> None:
        self._launch = launch
        self._stream = stream
        self._provider = provider
        self._turn = 0
        self._beginning = anyio.Lock()
        self._numbers = itertools.count(1)
        self.calls = AllowedCalls(stream)
        self.output: Any = None

    @property
    def run_id(self) -> str:
        """The id of this loop's run."""
        return self._launch.run_id

    @property
    def session_id(self) -> str:
        """The id of the session that the run belongs to."""
        return self._launch.session_id

    @property
    def launch(self) -> Launch:
        """What the run was started with."""
        return self._launch

    @property
    def turn_number(self) -> int:
        """The current response, from 1; 0 before the first."""
        return self._turn

    @property
    def transcript(self) -> tuple[Event, ...]:
        """The events of the session before this run, for a loop that continues it."""
        return self._launch.transcript

    @overload
    def tool(self, function: Callable[P, Awaitable[T]], /) -> Callable[P, Awaitable[T]]: ...
    @overload
    def tool(self, function: Callable[P, T], /) -> Callable[P, Awaitable[T]]: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, refused: OnRefusal = "raise"
    ) -> Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]: ...
    def tool(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, refused: OnRefusal = "raise"
    ) -> Any:
        """Wrap a function, async or not, in an async one that asks the gate before each call.

        A function that is not async runs in a thread; a cancelled run does not wait for it.

        Args:
            function: the function.
            name: the tool's name; left out, the function's.
            refused: for a refused call, `raise` ToolRefused or `tell`: return the text for the model.

        Raises:
            UsageError: `refused` is neither.
        """
        if refused not in ("raise", "tell"):
            raise UsageError(f"refused=`{refused}` is neither `raise` nor `tell`")
        if function is None:
            return functools.partial(self.tool, name=name, refused=refused)
        return asking(function, name=name, refused=refused, call=self.call)

    async def call(
        self,
        name: str,
        tool_input: Mapping[str, Any],
        act: Callable[[dict[str, Any]], Awaitable[T]],
        *,
        call_id: str | None = None,
    ) -> T:
        """Propose one call and, if it is allowed, run it; its result or exception is the call's outcome.

        Args:
            name: the tool.
            tool_input: what the model gave it.
            act: runs it with the allowed input.
            call_id: the model's own id of the call; left out, a new one.

        Raises:
            ToolRefused: it did not run.
        """
        call, given = await self.admit(name, tool_input, call_id=call_id)
        with self.calls.inside(call.id):
            try:
                result = await act(given)
            except BaseException as raised:
                error = tool_error(raised)
                self.calls.failed(call.id, error)
                raise error  # noqa: B904 - it is what was raised, or has that as its cause
        await self.calls.completed(call.id, result)
        await checkpoint()
        return result

    async def admit(
        self, name: str, tool_input: Mapping[str, Any], *, call_id: str | None = None
    ) -> tuple[ToolCall, dict[str, Any]]:
        """Propose one call for a framework that runs its tools itself; `calls` must then report the outcome.

        Returns:
            The call as recorded, and the input it may run with.

        Raises:
            ToolRefused: it may not run.
        """
        await self._begun()
        own_id = self.calls.within(call_id) if call_id else f"call-{next(self._numbers)}"
        call = self.calls.proposed(own_id, name, dict(tool_input), self._turn)
        if not is_finite(tool_input):  # the record would say null, and the tool would get NaN
            raise ToolRefused(call, f"A number in the input of tool '{name}' is not finite.")
        answer = await self._provider.ask(call)
        if not answer.allowed:
            raise ToolRefused(call, answer.tell_model or tell_model_default(name))
        self.calls.allowed(call)
        return call, call.input if answer.input is None else answer.input

    async def turn(self) -> None:
        """Report that the next response of the model begins; the first begins by itself.

        A response of a sub-agent that a tool runs is part of its parent's.
        """
        if self.calls.parent() is not None:
            return
        if self._turn:
            await self.report(TurnCompleted(turn=self._turn))
        self._turn += 1
        await self.report(TurnStarted(turn=self._turn))

    async def turn_refused(self, cap: int | None) -> None:
        """Report that the framework refused a response beyond `cap`, a compiled `max_turns`; the policy judges it."""
        if cap is not None and self._turn >= cap:
            await self.report(TurnStarted(turn=self._turn + 1))

    async def message(self, content: Any, *, role: Literal["assistant", "user", "system"] = "assistant") -> None:
        """Report a message: text, or a list of content blocks."""
        if role == "assistant":
            await self._begun()
            await self.report(MessageReceived(content=plain(content)))
        else:
            await self.report(MessageSent(role=role, content=plain(content)))

    async def usage(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
        reasoning_tokens: int = 0,
        cost_usd: float | None = None,
        model: str | None = None,
        cumulative: bool = False,
    ) -> None:
        """Report tokens used since the last report or, if `cumulative`, by the run so far.

        `input_tokens` includes tokens read from and written to the cache. Without `cost_usd` (the cost that the
        provider states, in USD), the price of `model` is used.
        """
        await self._begun()
        await self.report(
            TokenUsageUpdated(
                scope="cumulative" if cumulative else "delta",
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cache_read_tokens=cache_read_tokens,
                cache_write_tokens=cache_write_tokens,
                reasoning_tokens=reasoning_tokens,
                cost_usd=cost_usd,
                model=model,
            )
        )

    def narrow(self, tools: Sequence[str]) -> list[str]:
        """The tools that could be called now; offer the model only these."""
        return self._launch.narrow(list(tools))

    def check_thread(self) -> None:
        """Raises UsageError in a thread other than the run's: a call from there could not be held."""
        self._provider.check_thread()

    async def complete(self) -> None:
        """Report the end, with `output`."""
        if self._turn:
            await self.report(TurnCompleted(turn=self._turn))
        await self.report(RunCompleted(output=plain(self.output)))

    async def report(self, event: Event) -> None:
        """Report any other event; see `proctor.policies.events`."""
        await self._stream.emit(event)
        await checkpoint()  # where the run was cancelled because of the event, the loop ends here

    async def _begun(self) -> None:
        async with self._beginning:  # siblings wait until the turn they belong to was told
            if not self._turn:
                await self.turn()


def is_forced(choice: Any) -> bool:
    """Whether a `tool_choice` makes the model call a tool; providers refuse one that names a tool not offered."""
    return choice not in (None, "auto", "none")

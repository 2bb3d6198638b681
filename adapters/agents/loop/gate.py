"""The gate that supervises an agent's own loop."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar, overload

import anyio
from anyio.lowlevel import checkpoint

from proctor.policies import events as ev
from proctor.policies.errors import ProctorError
from proctor.policies.events.calls import ToolCall, tell_model_default
from proctor.policies.values.foreign_code import named_error
from proctor.supervisor.errors import UsageError
from proctor.supervisor.run.tasks import awaitable, tool_error

from ...kit.call_book import ClientCall, Turns, outcome_of
from ...kit.values import is_finite, to_jsonable

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapter import Launch

    from ...kit.gate import EventStream
    from ...kit.provider import TaskProvider


_inside: ContextVar[tuple[tuple[object, str], ...]] = ContextVar("proctor_inside_calls", default=())
"""The calls whose tools run this code, outermost first, each with its run, as a tool may start a run."""


class AllowedCalls:
    """Reports exactly one outcome for each allowed call."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._running: dict[str, ToolCall] = {}

    def proposed(self, call_id: str, name: str, tool_input: Any, turn: int) -> ToolCall:
        """A call to propose to the gate; a subagent's call names the one around it."""
        given = to_jsonable(tool_input)
        return ToolCall(
            id=call_id,
            name=name,
            input=given if isinstance(given, dict) else {"input": given},
            turn=turn,
            parent_tool_call_id=self.parent(call_id),
        )

    def unasked(self, call_id: str, name: str, tool_input: Any = None, turn: int = 0) -> ClientCall:
        """A call in a response that the model's provider runs itself, which cannot be held."""
        call = self.proposed(self.within(call_id), name, tool_input, turn)
        return ClientCall(id=call.id, name=name, input=call.input, turn=turn, parent=call.parent_tool_call_id)

    def parent(self, call_id: str | None = None) -> str | None:
        """The call whose tool runs this code, if any; for a call, the call around it."""
        path = [inside for run, inside in _inside.get() if run is self]
        if path and path[-1] == call_id:
            path.pop()
        return path[-1] if path else None

    def within(self, call_id: str) -> str:
        """The id in the run of a call made by this code, as a subagent's model may reuse its parent's ids."""
        parent = self.parent()
        return call_id if parent is None else f"{parent}.{call_id}"

    @contextmanager
    def inside(self, call_id: str) -> Iterator[None]:
        """Mark code in this context as run by the tool of this call."""
        token = _inside.set((*_inside.get(), (self, call_id)))
        try:
            yield
        finally:
            _inside.reset(token)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Leave the calls that were entered in this context at its end."""
        token = _inside.set(_inside.get())
        try:
            yield
        finally:
            _inside.reset(token)

    def enter(self, call_id: str) -> None:
        """Mark this task, from here on, as run by the tool of this call."""
        if self.parent() != call_id:
            _inside.set((*_inside.get(), (self, call_id)))

    def allowed(self, call: ToolCall) -> None:
        """Note that the gate allowed a call, whose outcome must be reported."""
        self._running[call.id] = call

    async def completed(self, call_id: str, result: Any) -> None:
        call = self._running.pop(call_id, None)
        if call is not None:
            await self._stream.send_and_wait(outcome_of(call, to_jsonable(result), failed=False))

    def failed(self, call_id: str, error: BaseException | str) -> None:
        call = self._running.pop(call_id, None)
        if call is not None:
            self._stream.send_nowait(outcome_of(call, _error_text(error), failed=True))

    def end(self) -> None:
        """Report the calls without an outcome as failed."""
        for call_id in list(self._running):
            self.failed(call_id, "ended before it was done")


def _error_text(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    if not isinstance(error, Exception):
        return "ended before it was done"
    return named_error(error)


class ToolRefused(ProctorError):  # noqa: N818 - what happened, not a fault
    """A call was denied and did not run. `tell_model` is the result for the model."""

    code: ClassVar[str] = "tool_refused"

    def __init__(self, call: ToolCall, tell_model: str) -> None:
        super().__init__(tell_model)
        self.call = call
        self.tell_model = tell_model


def with_objects(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The allowed input, with the Python objects of `values` where these are equal."""
    before = to_jsonable(values)
    return {
        name: values[name] if name in values and before[name] == value else value for name, value in given.items()
    }


class _Call:
    """One call of a function, by parameter name, defaults included."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._function = function
        self._bound = inspect.signature(function).bind(*args, **kwargs)
        self._bound.apply_defaults()
        self._gathered = next(
            (p.name for p in self._bound.signature.parameters.values() if p.kind is p.VAR_KEYWORD), None
        )

    def as_input(self) -> dict[str, Any]:
        """The tool's input as JSON, with the contents of `**kwargs` on the same level as the rest."""
        named = dict(self._bound.arguments)
        more = named.pop(self._gathered, {}) if self._gathered else {}
        found: dict[str, Any] = to_jsonable({**more, **named})
        return found

    async def run(self, tool_input: Mapping[str, Any]) -> Any:
        """Call it with the values of another input; unchanged ones keep their Python objects. Raises UsageError: the
        function has no such parameter.
        """
        before = self.as_input()
        for name, value in tool_input.items():
            if name in before and before[name] == value:
                continue
            if name in self._bound.signature.parameters:
                self._bound.arguments[name] = value
            elif self._gathered:
                self._bound.arguments[self._gathered][name] = value
            else:
                raise UsageError(f"the function has no parameter `{name}`")
        bare = functools.partial(self._function, *self._bound.args, **self._bound.kwargs)
        if inspect.iscoroutinefunction(self._function):
            return await bare()
        result = await anyio.to_thread.run_sync(bare, abandon_on_cancel=True)
        return await result if isinstance(result, Awaitable) else result


OnRefusal: TypeAlias = Literal["raise", "tell"]
Proposing: TypeAlias = Callable[[str, dict[str, Any], Callable[[dict[str, Any]], Awaitable[Any]]], Awaitable[Any]]
"""Proposes a call by name and input and, if it is allowed, runs it; raises ToolRefused if not."""


def proposing(
    function: Callable[..., Any], *, name: str | None, refused: OnRefusal, call: Proposing
) -> Callable[..., Awaitable[Any]]:
    """An async version of the function that proposes each of its calls. See `LoopGate.tool`."""
    tool_name = name or getattr(function, "__name__", "")
    if not tool_name:
        raise UsageError("the function has no name; use `gate.tool(name=...)`")

    @functools.wraps(function)
    async def proposed(*args: Any, **kwargs: Any) -> Any:
        each = _Call(function, args, kwargs)
        try:
            return await call(tool_name, each.as_input(), each.run)
        except ToolRefused as refusal:
            if refused == "raise":
                raise
            return refusal.tell_model

    return proposed


P = ParamSpec("P")
T = TypeVar("T")


class LoopGate:
    """The gate of your own loop: report messages and usage, and run tools through it.

    Every method that waits returns when the supervisor has processed the report; if the report ends the run, the
    loop is cancelled there.

    A call runs only after the gate has allowed it, with the input of the answer.
    """

    def __init__(self, provider: TaskProvider) -> None:
        self._provider = provider
        self._turns = Turns()
        self._beginning = anyio.Lock()
        self._numbers = itertools.count(1)
        self.calls = AllowedCalls(provider.stream)
        self.output: Any = None

    @property
    def run_id(self) -> str:
        """The id of this loop's run."""
        return self._provider.launch.run_id

    @property
    def session_id(self) -> str:
        """The id of the session that the run belongs to."""
        return self._provider.launch.session_id

    @property
    def launch(self) -> Launch:
        """The options the run was started with."""
        return self._provider.launch

    @property
    def turn_number(self) -> int:
        """The current turn, from 1; 0 before the first."""
        return self._turns.number

    @property
    def transcript(self) -> tuple[ev.Event, ...]:
        """The events of the session before this run, for a loop that continues it."""
        return self._provider.launch.transcript

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
            refused: for a denied call: `raise` ToolRefused, or `tell`, which returns the text for the model.

        Raises:
            UsageError: `refused` is neither.
        """
        if refused not in ("raise", "tell"):
            raise UsageError(f"refused=`{refused}` is neither `raise` nor `tell`")
        if function is None:
            return functools.partial(self.tool, name=name, refused=refused)
        return proposing(function, name=name, refused=refused, call=self.call)

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
            UsageError: the input is not a mapping, or this is another thread than the run's.
        """
        call, given = await self.admit(name, tool_input, call_id=call_id)
        with self.calls.inside(call.id):
            try:
                result = await awaitable(act(given))
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
            UsageError: the input is not a mapping, or this is another thread than the run's.
        """
        if not isinstance(tool_input, Mapping):
            raise UsageError(f"the input of `{name}` is a value of type `{type(tool_input).__name__}`, not a mapping")
        await self._begun()
        own_id = self.calls.within(call_id) if call_id else f"call-{next(self._numbers)}"
        call = self.calls.proposed(own_id, name, dict(tool_input), self._turns.number)
        if not is_finite(tool_input):  # the record would say null, and the tool would get NaN
            raise ToolRefused(call, f"A number in the input of tool '{name}' is not finite.")
        answer = await self._provider.propose(call)
        if not answer.allowed:
            raise ToolRefused(call, answer.tell_model or tell_model_default(name))
        self.calls.allowed(call)
        return call, call.input if answer.input is None else answer.input

    async def turn(self) -> None:
        """Report that the next turn starts; the first starts by itself.

        A turn of a subagent that a tool runs is part of its parent's turn.
        """
        self.check_thread()
        if self.calls.parent() is not None:
            return
        for event in itertools.chain(self._turns.end(), self._turns.begin()):
            await self.report(event)

    async def turn_refused(self, cap: int | None) -> None:
        """Report that the framework rejected a turn beyond `cap`, a compiled `max_turns`; the policy decides."""
        if cap is not None and self._turns.number >= cap:
            await self.report(ev.TurnStarted(turn=self._turns.number + 1))

    async def message(self, content: Any, *, role: Literal["assistant", "user", "system"] = "assistant") -> None:
        """Report a message: text, or a list of content blocks."""
        if role == "assistant":
            await self._begun()
            await self.report(ev.MessageReceived(content=to_jsonable(content)))
        else:
            await self.report(ev.MessageSent(role=role, content=to_jsonable(content)))

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
            ev.TokenUsageUpdated(
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
        return self._provider.launch.narrow(list(tools))

    def check_thread(self) -> None:
        """Raises UsageError in another thread than the run's."""
        self._provider.check_thread()

    async def complete(self) -> None:
        """Report the end, with `output`."""
        for event in self._turns.end():
            await self.report(event)
        await self.report(ev.RunCompleted(output=to_jsonable(self.output)))

    async def report(self, event: ev.Event) -> None:
        """Report any other event; see `proctor.policies.events`. Raises as `check_thread` does."""
        self.check_thread()
        await self._provider.stream.send_and_wait(event)
        await checkpoint()  # where the run was cancelled because of the event, the loop ends here

    async def _begun(self) -> None:
        self.check_thread()
        async with self._beginning:  # siblings wait until the turn they belong to was told
            if not self._turns.number:
                await self.turn()


def is_forced(choice: Any) -> bool:
    """Whether a `tool_choice` forces a tool call; providers reject one that names a tool not offered."""
    return choice not in (None, "auto", "none")

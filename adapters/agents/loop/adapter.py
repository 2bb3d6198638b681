"""FunctionAdapter: an agent loop that is a function."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, Unpack

import anyio

from proctor.policies.errors import PolicyViolationError
from proctor.policies.events import Event
from proctor.policies.events.run_context import Capabilities, Tool
from proctor.policies.policy import Policy
from proctor.supervisor import arguments
from proctor.supervisor.api.active_runs import RunHandle
from proctor.supervisor.api.run_once import SERVICES
from proctor.supervisor.api.supervisor import Supervisor
from proctor.supervisor.errors import ProviderUnavailableError, UsageError, install_of
from proctor.supervisor.launch.history import store_and_approver
from proctor.supervisor.machine.interface import RunResult
from proctor.supervisor.ports.adapter import Approver, Launch, LaunchOptions, Provider, Publisher
from proctor.supervisor.ports.store import Store
from proctor.supervisor.redaction import Redaction
from proctor.supervisor.run.tasks import awaitable

from ...kit.client_tools import KNOWN
from ...kit.function_tools import MOSTLY, tools_given
from ...kit.launch_options import NoLaunchOptions, limit_options
from ...kit.process_tree import home_of
from ...kit.provider import TaskProvider, at_work
from ...kit.values import import_object
from .gate import LoopGate


@asynccontextmanager
async def looping(launch: Launch, loop: Callable[[LoopGate], Awaitable[None]]) -> AsyncIterator[Provider]:
    """Run a loop under a gate of its own; leaving cancels it."""
    provider = TaskProvider(launch)
    async with at_work(provider, partial(loop, LoopGate(provider))):
        yield provider


Loop: TypeAlias = Callable[[LoopGate, str], Awaitable[Any]]
NAME: Final = "function"


class FunctionAdapter(NoLaunchOptions):
    """Runs prompts with your own loop, `async def loop(gate, prompt)`; its result is the output.

    Args:
        loop: the function, or its name as `module:name`.
        tools: the tools it calls, if known: names, functions, tools of a framework, or schemas as given to
            models.
        model: the model it uses, if known.

    Raises:
        UsageError: there is no such function.
    """

    name = NAME

    def __init__(self, loop: Loop | str, *, tools: Sequence[Any] | None = None, model: str | None = None) -> None:
        found = import_object(loop, what="loop")
        if not callable(found):
            raise UsageError(f"loop `{loop}` is not a function")
        self._loop: Loop = found
        self._tools = None if tools is None else tools_given(tools)
        self._model = model

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of a loop that calls its tools through the gate."""
        return loop_capabilities(self._tools, self._model)

    def open(self, launch: Launch) -> AbstractAsyncContextManager[Provider]:
        """Start the loop; leaving cancels it."""

        async def job(gate: LoopGate) -> None:
            gate.output = await awaitable(self._loop(gate, launch.prompt))
            await gate.complete()

        return looping(launch, job)


def loop_capabilities(tools: tuple[Tool, ...] | None, model: str | None, **more: Any) -> Capabilities:
    """The capabilities of a loop that calls its tools through the gate, with `more` for this one.

    A tool has a portable name if its name and parameters show one.
    """
    can: dict[str, Any] = {"gate": "all", "rewrite": True, "usage": "per_turn", "narrow": True, **more}
    can |= {"workspace": os.path.abspath(os.curdir), "home": home_of(os.environ)}
    return Capabilities(tools=tools, mostly=MOSTLY, elsewhere=KNOWN, model=model, **can)


T = TypeVar("T")


class Histories(Generic[T]):
    """The messages at the end of the latest sessions; a session that continued elsewhere is forgotten."""

    KEPT = 256

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, list[T]]] = {}

    def keep(self, session_id: str, run_id: str, items: Sequence[T]) -> None:
        """Keep the messages at the end of a session's run."""
        self._kept.pop(session_id, None)
        self._kept[session_id] = (run_id, list(items))
        while len(self._kept) > self.KEPT:
            del self._kept[next(iter(self._kept))]

    def find(self, session_id: str, transcript: Sequence[Event]) -> list[T] | None:
        """The conversation of these events, if the last run among them is the last that was kept."""
        last = next((event.run_id for event in reversed(transcript) if event.run_id), None)
        run_id, items = self._kept.get(session_id, (None, []))
        return list(items) if run_id is not None and run_id == last else None


class FrameworkAdapter(ABC):
    """Runs prompts with an agent of a framework.

    Args:
        agent: the agent, or its name as `module:name`.
        narrow: offer the model only the tools that it could call now.
        stream: report text as it is written.
    """

    name: ClassVar[str]
    """The adapter's name, and that of the extra which installs the framework."""
    title: ClassVar[str]
    """The framework's name in messages."""
    library: ClassVar[str]
    """The module that is imported."""
    limits: ClassVar[Mapping[str, str]]
    """The limits that it enforces as a policy means them, by its own names."""

    def __init__(self, agent: Any, *, narrow: bool, stream: bool) -> None:
        self._agent = import_object(agent, what="agent")
        self._narrow = narrow
        self._stream = stream
        self._histories: Histories[Any] = Histories()

    async def prepare(self) -> None:
        """Check that the framework is installed and supports this event loop. Raises ProviderUnavailableError."""
        try:
            import_module(self.library)
        except ImportError as error:
            raise ProviderUnavailableError(f"{self.title} is not installed; {install_of(self.name)}") from error
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ProviderUnavailableError(
                f"{self.title} runs on asyncio only; start with `anyio.run(..., backend='asyncio')`"
            ) from None

    def compile(self, policy: Policy) -> LaunchOptions:
        """Turn the merged policy's limits into the framework's."""
        return limit_options(policy, self.limits)

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Start the agent; leaving cancels it."""
        await self.prepare()
        async with looping(launch, self._player()) as provider:
            yield provider

    @abstractmethod
    def _player(self) -> Callable[[LoopGate], Awaitable[None]]:
        """The function that runs the agent under a gate."""

    def _capabilities(self, tools: tuple[Tool, ...], model: str | None, **more: Any) -> Capabilities:
        more |= {"narrow": self._narrow, "compiles": tuple(self.limits), "other_tools": True}
        return loop_capabilities(tools or None, model, **more)


class Supervised(LoopGate):
    """The gate of a block of code; after the block, `result` has the run's result."""

    def __init__(self, provider: TaskProvider, supervisor: Supervisor) -> None:
        super().__init__(provider)
        self.supervisor = supervisor
        self._result: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """The run's result. Raises UsageError while the run is not over, and if the block failed."""
        if self._result is None:
            raise UsageError("there is no result yet: the block is still running, or it failed")
        return self._result

    def check_thread(self) -> None:
        """Raises UsageError in another thread than the run's, and after the block."""
        if self._result is not None:
            raise UsageError("the block of this gate has ended: put its calls and reports into the block")
        super().check_thread()


@asynccontextmanager
async def supervise(
    policies: Sequence[Policy] | None = None,
    /,
    *,
    prompt: str = "",
    store: Store | None = None,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    redaction: Redaction | None = None,
    tools: Sequence[Any] | None = None,
    model: str | None = None,
    **options: Unpack[arguments.OnceOptions],
) -> AsyncIterator[Supervised]:
    """Supervise a block of code as one run; `async with` returns its gate.

    The block is cancelled if a limit, a violation or a person cancels the run. The value that it assigns to
    `gate.output` is the run's output; `gate.supervisor` answers approvals.

    Args:
        policies: the policies, merged left to right; `()` for no policy.
        prompt: the block's task, as recorded.
        store: where the run is recorded; by default in memory, or that of a parent run with budgets.
        approver: answers approval requests in this process; without a store, by default that of such a parent.
        publishers: functions that receive each stored event.
        redaction: which secrets to redact; by default the usual patterns.
        tools: the tools that the block calls, if known: names, functions, tools of a framework, or schemas as
            given to models.
        model: the model that it uses, if known.
        options: as for `run_once`.

    Raises:
        PolicyViolationError: preflight rejected the run, or a policy cancelled it; `gate.result` is then partial.
        PolicyError, UsageError: an argument is wrong.
        StoreError: the store cannot be written.
    """
    of_run, bounds = _split_options(policies, options)
    block = _Block(None if tools is None else tools_given(tools), model)
    store, approver, _ = store_and_approver(store, approver)
    async with Supervisor(
        store, approver=approver, publishers=publishers, redaction=redaction, **bounds
    ) as supervisor:
        handle = await supervisor.start(block, prompt, **of_run)
        gate = await block.opened(handle, supervisor)
        if gate is not None:
            async with _running(block, handle, gate):
                yield gate
        await handle.wait_finished()
    try:
        result = await handle.wait()
    except PolicyViolationError as error:
        if gate is not None:
            gate._result = error.partial
        raise
    except Exception as error:
        if block.failed is not None and _contains(block.failed, error):
            raise block.failed from None
        raise
    if gate is None:
        raise UsageError(f"the run ended before the block began: {result.reason}")
    gate._result = result


def _split_options(policies: Sequence[Policy] | None, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """The options of the run, and those of its record. Raises UsageError."""
    arguments.check_options("supervise", options, arguments.OnceOptions, "prompt", *SERVICES, "tools", "model")
    of_run, bounds = arguments.parted(options)
    if policies is not None and of_run.setdefault("policies", policies) is not policies:
        raise UsageError("`policies` is given twice; give it once")
    return of_run, bounds


@asynccontextmanager
async def _running(block: _Block, handle: RunHandle, gate: Supervised) -> AsyncIterator[None]:
    """Run the block's body; its exception is the run's, and a cancel from outside ends the run."""
    provider, left = block.provider, False
    assert provider is not None
    try:
        with provider.scope:
            yield
            await gate.complete()
        left = True
    except Exception as error:
        block.failed, left = error, True
    finally:
        if not left:
            with anyio.CancelScope(shield=True):
                await handle.cancel(reason="the block was cancelled")
        provider.stream.close(provider.failure or block.failed)


def _contains(failure: Exception, error: Exception) -> bool:
    """Whether a group contains this error; the supervisor unwraps a group of one."""
    return isinstance(failure, ExceptionGroup) and failure.subgroup(lambda each: each is error) is not None


class _Block(NoLaunchOptions):
    """An Adapter for one run, whose agent is the block."""

    name = NAME

    def __init__(self, tools: tuple[Tool, ...] | None, model: str | None) -> None:
        self.capabilities: Capabilities = loop_capabilities(tools, model)
        self.failed: Exception | None = None
        self.provider: TaskProvider | None = None
        self._open = anyio.Event()

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        self.provider = TaskProvider(launch)
        self._open.set()
        yield self.provider

    async def opened(self, handle: RunHandle, supervisor: Supervisor) -> Supervised | None:
        """Wait until the run has begun; None if it ended before."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._open_when_over, handle)
            await self._open.wait()
            tasks.cancel_scope.cancel()
        return None if self.provider is None else Supervised(self.provider, supervisor)

    async def _open_when_over(self, handle: RunHandle) -> None:
        await handle.wait_finished()
        self._open.set()

"""supervise: an agent loop that is a block of code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from proctor.policies.errors import PolicyViolationError
from proctor.policies.events.run_context import Capabilities, RunContext, Tool
from proctor.policies.policy import Policy
from proctor.supervisor.api.active_runs import RunHandle
from proctor.supervisor.api.supervisor import Supervisor
from proctor.supervisor.errors import UsageError
from proctor.supervisor.machine.interface import RunResult
from proctor.supervisor.ports.adapter import Approver, Launch, Provider, Publisher
from proctor.supervisor.ports.store import Store
from proctor.supervisor.store.memory_store import MemoryStore

from ...kit.function_tools import tools_given
from ...kit.gate import EventStream
from ...kit.launch_options import NoLaunchOptions
from ...kit.provider import TaskProvider
from .adapter import NAME, loop_capabilities
from .gate import LoopGate


class Supervised(LoopGate):
    """The gate of a block of code; after the block, `result` says how the run ended."""

    def __init__(self, launch: Launch, stream: EventStream, provider: TaskProvider, supervisor: Supervisor) -> None:
        super().__init__(launch, stream, provider)
        self.supervisor = supervisor
        self._result: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """How the run ended. Raises UsageError while the run is not over, and if the block failed."""
        if self._result is None:
            raise UsageError("there is no result: the block is still running, or it has failed")
        return self._result


@asynccontextmanager
async def supervise(
    policies: Sequence[Policy] | None = None,
    *,
    policy: Policy | None = None,
    prompt: str = "",
    store: Store | None = None,
    context: RunContext | None = None,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    session_id: str | None = None,
    run_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tools: Sequence[Any] | None = None,
    model: str | None = None,
) -> AsyncIterator[Supervised]:
    """Supervise a block of code as one run; `async with` gives its gate.

    The block is cancelled when a limit, a deadline, a refusal or a person ends the run. The value it assigns to
    `gate.output` is the run's output; `gate.supervisor` answers approvals.

    Args:
        policies: the policies, merged left to right; `()` for a run under no policy.
        policy: one policy, instead of `policies`.
        prompt: the block's task, for the record.
        store: where the run is recorded; by default in memory.
        context: who runs what.
        approver: answers held calls in this process.
        publishers: receive every stored event.
        session_id: the session to continue; a new one if not given.
        run_id: the run's id; by default a new one.
        metadata: anything to record with the run.
        tools: the tools that the block calls, if known: names, functions, tools of a framework, or schemas as
            given to models.
        model: the model that it uses, if known.

    Raises:
        PolicyViolationError: preflight refuses, or a policy cancelled the run; `gate.result` is then partial.
        PolicyError, UsageError: an argument makes no sense.
        StoreError: the run cannot be recorded.
    """
    block = _Block(None if tools is None else tools_given(tools), model)
    async with Supervisor(store or MemoryStore(), approver=approver, publishers=publishers) as supervisor:
        handle = await supervisor.start(
            block,
            prompt,
            policies=policies,
            policy=policy,
            context=context,
            session_id=session_id,
            run_id=run_id,
            metadata=metadata,
        )
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
        if block.failed is not None and _holds(block.failed, error):
            raise block.failed from None
        raise
    if gate is None:
        raise UsageError(f"the run ended before the block began: {result.reason}")
    gate._result = result


@asynccontextmanager
async def _running(block: _Block, handle: RunHandle, gate: Supervised) -> AsyncIterator[None]:
    """Run the block's body; its exception is the run's, and a cancel from outside ends the run."""
    left = False
    try:
        with block.provider.scope:
            yield
            await gate.complete()
        left = True
    except Exception as error:
        block.failed, left = error, True
    finally:
        if not left:
            with anyio.CancelScope(shield=True):
                await handle.cancel(reason="the block was cancelled")
        block.stream.close(block.provider.failure or block.failed)


def _holds(failure: Exception, error: Exception) -> bool:
    """Whether a group has this error in it: the supervisor takes the one error out of a group of one."""
    return isinstance(failure, ExceptionGroup) and failure.subgroup(lambda each: each is error) is not None


class _Block(NoLaunchOptions):
    """An Adapter for one run: the agent is the block."""

    name = NAME

    def __init__(self, tools: tuple[Tool, ...] | None, model: str | None) -> None:
        self.capabilities: Capabilities = loop_capabilities(tools, model)
        self.stream = EventStream()
        self.failed: Exception | None = None
        self._launch: Launch | None = None
        self._open = anyio.Event()
        self.provider: TaskProvider

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        """Let the block begin."""
        self.provider = TaskProvider(self.stream, launch)
        self._launch = launch
        self._open.set()
        yield self.provider

    async def opened(self, handle: RunHandle, supervisor: Supervisor) -> Supervised | None:
        """Wait until the run has begun; None if it ended before."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._or_over, handle)
            await self._open.wait()
            tasks.cancel_scope.cancel()
        if self._launch is None:
            return None
        return Supervised(self._launch, self.stream, self.provider, supervisor)

    async def _or_over(self, handle: RunHandle) -> None:
        await handle.wait_finished()
        self._open.set()

"""One running client: its stream of events, its cancel steps, its end."""

import os
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any

import anyio
import anyio.to_thread
import psutil
from anyio.abc import TaskStatus
from claude_agent_sdk import ClaudeSDKClient, CLIConnectionError

from proctor.policies.events import ErrorOccurred, Event, MessageStreamed, ToolCallFailed
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapter import Launch

from ...kit.call_book import ClientCall
from ...kit.gate import run_logger
from ...kit.process_tree import GUARDS, RUN_MARK, ProcessTree, bash_for_commands, guardian_killed, marked_environment
from ...kit.provider import ClientSession, helpers
from .hooks import ClaudeCalls, Hooks
from .launch import agent_options, decision
from .translation import ClaudeTranslation, SessionMeter, Wire, opening_error, provider_error

INTERRUPT_S = 2.0
CLOSE_S = 1.0
ORDER_S = 30.0
"""Seconds until a call that the client asks about must be in its records; otherwise the call is denied."""
LIFE_SIGN_S = 1.0
LINGER_S = 2.0
"""Seconds the client's process may outlive its output; one that exits normally takes a moment."""


class ClaudeSession(ClientSession):
    """A Provider: one client from its start to its end; `own` are the caller's options of ClaudeAgentOptions."""

    client_name = "the Claude Code client"
    interrupt_s = INTERRUPT_S
    close_s = CLOSE_S

    def __init__(self, own: Mapping[str, Any], launch: Launch) -> None:
        super().__init__(launch, rewrites=True)
        self._calls = ClaudeCalls()
        self._meter = SessionMeter()
        self._stderr: deque[str] = deque(maxlen=40)
        self._translator = ClaudeTranslation(self._calls, turn_cap=launch.options.options.get("max_turns"))
        self._moved = anyio.Event()
        self._usage_due = anyio.Event()
        self._release = anyio.Event()
        self._reading = anyio.CancelScope()
        self._failure: ProviderError | None = None
        self._mark = launch.mark
        self._tree = ProcessTree(mark=self._mark)
        self._wire: Wire | None = None
        self._last_sign = 0.0
        self._log = run_logger(launch)
        hooks = Hooks(self._gate, self._calls, self._wait_until_judged, self._changed, decision(own), self._log)
        whole = {**os.environ, **own.get("env", {})}
        mark = {**marked_environment(self._mark, {}), **bash_for_commands(whole)}
        options = agent_options(own, launch, hooks=hooks, mark=mark, stderr=self._stderr.append)
        self._client = ClaudeSDKClient(options)

    @property
    def tree(self) -> ProcessTree:
        return self._tree

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Run the client; `task_status` starts once the prompt was sent. It always ends with no process left."""
        try:
            wire = await self._connect()
        except BaseException:
            await self._shut_down()
            raise
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_records, wire)
            task_status.started()
            try:
                await self._release.wait()
            finally:
                await self._shut_down()
            tasks.cancel_scope.cancel()

    def guardian_killed(self) -> ProviderError | None:
        """The error for a client whose guardian was killed by somebody else."""
        return None if self._wire is None else guardian_killed(self._wire.returncode)

    async def _connect(self) -> Wire:
        try:
            await self._client.connect()
            self._tree.add(await anyio.to_thread.run_sync(_marked_child, self._mark))
            self._wire = wire = Wire(self._client)
            self._meter.begin(await wire.model_usage())
            await self._client.query(self.prompt)
        except Exception as error:
            resuming = self._launch.resume is not None
            raise opening_error(error, self._stderr, resuming=resuming) from error
        return wire

    async def _read_records(self, wire: Wire) -> None:
        error: ProviderError | None = None
        async with helpers() as beside:
            beside.start_soon(self._measure, wire)
            beside.start_soon(self._watch, wire)
            try:
                with self._reading:
                    await self._read(wire)
            except Exception as failure:
                error = provider_error(failure, self._stderr)
        killed = self.guardian_killed()
        if self._failure is not None:
            self._stream.close(killed or self._failure)
        elif self._translator.result is not None:
            await self._finish(self._translator.result)
            self._stream.close()
        elif self._closing:
            self._stream.close()
        else:
            self._stream.close(killed or error or self._error("ended without a result"))

    async def _read(self, wire: Wire) -> None:
        async with aclosing(wire.records()) as records:
            async for record in records:
                await self._handle_message(record)
                if self._translator.done:
                    break

    async def _watch(self, wire: Wire) -> None:
        """Give up a client that is alive but silent, as its end would never be reported."""
        await wire.output_ended.wait()
        await anyio.sleep(LINGER_S)
        self._fail(self._error("closed its output and kept running; it was ended"))

    def _fail(self, error: ProviderError) -> None:
        if not self._closing:
            self._failure = error
            self._reading.cancel()

    def _error(self, what: str) -> ProviderError:
        return ProviderError(f"the Claude Code client {what}", details={"stderr": list(self._stderr)})

    async def _handle_message(self, record: dict[str, Any]) -> None:
        events = [event for event in self._translator.events(record) if self._is_visible(event)]
        await self._gate.report([event for event in events if not await self._attempted(event)])
        self._usage_due.set()
        self._notify()

    async def _attempted(self, event: Event) -> bool:
        """Whether the client denied a call without asking, and the policy denies it too."""
        refused = self._calls.pop_unasked(event.tool_call_id) if isinstance(event, ToolCallFailed) else None
        return refused is not None and await self._gate.attempted(refused)

    def _is_visible(self, event: Event) -> bool:
        """Whether to report an event; of bare signs of life, only one now and then."""
        return not isinstance(event, MessageStreamed) or bool(event.delta) or self._sign_due()

    def _sign_due(self) -> bool:
        now = anyio.current_time()
        due = now - self._last_sign >= LIFE_SIGN_S
        if due:
            self._last_sign = now
        return due

    async def _finish(self, result: dict[str, Any]) -> None:
        await self._gate.report(self._meter.usage_of(result.get("modelUsage") or {}))
        await self._gate.report(self._translator.ending(self._meter.run_totals()))

    async def _measure(self, wire: Wire) -> None:
        """Request the session's totals whenever the client has reported something."""
        while True:
            await self._usage_due.wait()
            self._usage_due = anyio.Event()
            try:
                totals = await wire.model_usage()
            except CLIConnectionError:
                return  # the client's end is told where its records are read
            except Exception as error:
                self._fail(provider_error(error, self._stderr))
                return
            await self._gate.report(self._meter.usage_of(totals))

    async def _wait_until_judged(self, call_id: str, agent_id: str | None) -> None:
        """Wait until the client's records have this call, so that everything before it is evaluated first."""
        try:
            with anyio.fail_after(ORDER_S):
                while self._calls.turn_of(call_id, agent_id) is None:
                    await self._moved.wait()
        except TimeoutError:
            message = f"the client asked about call `{call_id}` and did not report it within {ORDER_S:g} s"
            self._stream.send_nowait(ErrorOccurred(code="call_untold", message=message))
            raise

    async def _changed(self, ran: ClientCall) -> None:
        """Evaluate a call that ran with another input than the evaluated one, and end the run."""
        await self._stream.send_and_wait(ran.started())
        self._fail(
            ProviderError(
                f"call `{ran.id}` ran with another input than was evaluated; a hook of its settings changed it",
                details={"code": "input_changed", "tool_call_id": ran.id, "tool_name": ran.name},
            )
        )

    def _notify(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def interrupt(self) -> dict[str, Any] | None:
        """Interrupt the client; returns its processes, and whether it answered."""
        self._closing = True
        seen = await anyio.to_thread.run_sync(self._tree.snapshot)
        with anyio.move_on_after(INTERRUPT_S) as scope:
            await self._client.interrupt()
        return {"seen": seen, "answered": not scope.cancelled_caught}

    async def disconnect(self) -> None:
        self._release.set()

    async def _shut_down(self) -> None:
        """Disconnect, and end the client's remaining processes; each step is bounded."""
        self._closing = True
        self._release.set()
        disconnected = anyio.Event()
        with anyio.CancelScope(shield=True):
            alive = await anyio.to_thread.run_sync(self._tree.snapshot)
            listens = self._failure is None
            if listens and ((not self._translator.done and alive) or len(alive) > 1 + GUARDS):
                with anyio.move_on_after(1), suppress(Exception):
                    await self._client.interrupt()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._leave, disconnected)
                with anyio.move_on_after(CLOSE_S):
                    await disconnected.wait()
                await _end(self._tree)
        self._stream.close()

    async def _leave(self, disconnected: anyio.Event) -> None:
        try:
            await self._client.disconnect()
        except Exception as error:
            self._log.warning("claude.disconnect_failed", error=str(error))
        disconnected.set()


async def _end(tree: ProcessTree) -> None:
    if await anyio.to_thread.run_sync(tree.snapshot):
        await tree.terminate(1.0)
        await tree.kill()


def _marked_child(mark: str) -> int:
    """The pid of the client, which the SDK does not expose: our child process with the mark."""
    for child in psutil.Process(os.getpid()).children():
        with suppress(psutil.Error):
            if child.environ().get(RUN_MARK) == mark:
                return child.pid
    raise ProviderError("the Claude Code client ended as soon as it was started")

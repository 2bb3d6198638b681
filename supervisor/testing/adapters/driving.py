"""Runs an adapter by hand, with a scripted gate, and keeps everything that happened in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

import anyio
import msgspec

from proctor.policies.stream.calls import ToolCall, tell_model_default
from proctor.policies.stream.events import Event, ToolOutcome
from proctor.supervisor.errors import ProviderError
from proctor.supervisor.ports.adapters import Adapter, GateAnswer, Launch, LaunchOptions, Provider

Answering: TypeAlias = Callable[[ToolCall], Awaitable[GateAnswer]]
Watching: TypeAlias = Callable[[Event], bool]


class Driven(msgspec.Struct, kw_only=True):
    """What happened: `log` has the calls proposed to the gate and the events, in one order."""

    log: list[ToolCall | Event] = msgspec.field(default_factory=list)
    error: Exception | None = None
    evidence: dict[str, Any] = {}
    rungs: list[str] = msgspec.field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        """The stream."""
        return [item for item in self.log if isinstance(item, Event)]

    @property
    def proposed(self) -> list[ToolCall]:
        """The calls proposed to the gate, in order."""
        return [item for item in self.log if isinstance(item, ToolCall)]

    @property
    def types(self) -> list[str]:
        """The types of the events."""
        return [event.type for event in self.events]

    def outcomes(self, call_id: str) -> list[ToolOutcome]:
        """The outcomes of a call."""
        return [e for e in self.events if isinstance(e, ToolOutcome) and e.tool_call_id == call_id]


@dataclass(eq=False)
class Drive:
    """One run of an adapter.

    Args:
        adapter: what to run.
        refuse: names of tools the gate refuses.
        answer: the gate, instead of `refuse`.
        stop: whether a refusal also stops the agent.
        cancel_when: walk the ladder once an event satisfies this.
        resume: the id of the agent's own session to resume.
        narrow: returns those of the given tools that could be called now; by default all.
    """

    adapter: Adapter
    _: KW_ONLY
    refuse: Collection[str] = ()
    answer: Answering | None = None
    stop: bool = False
    cancel_when: Watching | None = None
    options: LaunchOptions | None = None
    resume: str | None = None
    narrow: Callable[[Sequence[str]], list[str]] = list
    done: Driven = field(default_factory=Driven, init=False)
    _ended: anyio.Event = field(default_factory=anyio.Event, init=False)
    _cancelled: anyio.Event = field(default_factory=anyio.Event, init=False)

    async def run(self, prompt: str = "go", *, run_id: str | None = None) -> Driven:
        """Start the adapter, read it to its end and return what happened, including an error of the client."""
        await self.adapter.prepare()
        launch = Launch(
            run_id=run_id or f"run-{uuid4().hex}",
            session_id="s-1",
            prompt=prompt,
            gate=self._gate,
            options=self.options or LaunchOptions(),
            resume=self.resume,
            narrow=self.narrow,
        )
        try:
            async with self.adapter.open(launch) as provider, anyio.create_task_group() as tasks:
                tasks.start_soon(self._walk, provider)
                try:
                    await self._read(provider)
                finally:
                    self._ended.set()
                    tasks.cancel_scope.cancel()
        except ProviderError as error:
            self.done.error = error
        return self.done

    def cancel(self) -> None:
        """Walk down the ladder now."""
        self._cancelled.set()

    async def _read(self, provider: Provider) -> None:
        try:
            async for event in provider.events():
                self.done.log.append(event)
                if self.cancel_when is not None and self.cancel_when(event):
                    self.cancel()
        except Exception as error:
            self.done.error = error

    async def _walk(self, provider: Provider) -> None:
        await self._cancelled.wait()
        for rung in provider.ladder():
            if self._ended.is_set():
                return
            self.done.rungs.append(rung.name)
            with anyio.move_on_after(rung.bound_s):
                self.done.evidence[rung.name] = await rung.act()
                await self._ended.wait()

    async def _gate(self, call: ToolCall) -> GateAnswer:
        self.done.log.append(call)
        if self.answer is not None:
            return await self.answer(call)
        if call.name in self.refuse:
            text = tell_model_default(call.name)
            return GateAnswer(allowed=False, tell_model=text, stop=self.stop)
        return GateAnswer(allowed=True)

"""One session of the client: the machine of its latest run, and what carries out its effects."""

import os
from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from proctor.policies.events import (
    Event,
    RunCancelled,
    RunCompleted,
    RunStarted,
    SessionStarted,
    ToolApprovalGranted,
    ToolCallCompleted,
    ToolCallRequested,
    ToolCallStarted,
    ToolEvent,
    at_ms,
)
from proctor.policies.events.run_context import RunContext, portable
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.event_factory import PriorSession
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.processes import is_gone
from proctor.supervisor.ports.stored_types import NOBODY_IN_TIME, Block, block_of
from proctor.supervisor.redaction import Redactor
from proctor.supervisor.run.recovery import lost_error

from ..kit.process_tree import home_of
from .decisions import HookMonitor, Rules
from .messages import HookClient, LastOutput, Unmatched
from .record import HookRecord

Handled: TypeAlias = tuple[list[Event], list[interface.Effect]]
"""The events the machine recorded, and the effects it wants."""
_REST_NOTE = "rest"
"""The name of the last run that rested."""
_NEVER_S = 10.0 * 365 * 24 * 3600
"""The client's question to its person does not expire."""


class HookedSession:
    """A session as its record has it; the client, its id of it and the record's.

    `monitor` and `machine` are those of its latest run, which began at `run_at`; `runs` is their number;
    `called`: there was a call in this session; `approved`: calls that its client let run when it was to ask;
    `supposed`: calls that have ended without a hook's word; `made_by`: of calls that a script of the model makes, its
    log and the scripts that ran then; `steered`: of `continues_by`.
    """

    def __init__(
        self,
        client: HookClient,
        client_id: str,
        session_id: str,
        rules: Rules,
        past: Iterable[Event],
        folder: str,
        unmatched: Unmatched,
        hold_s: int,
    ) -> None:
        past = list(past)
        self.hold_s = hold_s
        self._waiting_for: set[str] = set()
        self.client = client
        self.provider = provider = client.name
        self.client_id = client_id
        self.session_id = session_id
        self.rules = rules
        place = {"provider": provider, "session_id": session_id, **_place(past, folder, rules.context)}
        self.context = msgspec.structs.replace(rules.context, **place)
        self.monitor = HookMonitor(rules.compiled, rules.compiled.monitor(self.context), unmatched)
        self.runs = 0
        self.run_at: datetime | None = None
        self.called = False
        self.approved: set[str] = set()
        self.supposed: set[str] = set()
        self.made_by: dict[str, tuple[str, frozenset[str]]] = {}
        self.steered: LastOutput | None = None
        self._scheduled: set[str] = set()
        self._prompt_id = ""
        self._prompts: set[str] = set()
        self._cancelled: set[str] = set()
        self._keys = 0
        self._past = PriorSession()
        self._stored = 0
        self._learn(past)
        self._redactor = Redactor()
        self.machine = RunMachine.resume(self._identity(), self.monitor, past, **self._settings())

    @property
    def run_id(self) -> str:
        """That of its latest run."""
        return self._identity().run_id

    @property
    def has_run(self) -> bool:
        """Whether there is a run and it has not ended."""
        return self.runs > 0 and not self.machine.ended

    @property
    def workspace(self) -> str:
        """The folder in which its client began; empty if unknown."""
        return self.context.workspace or ""

    @property
    def open_calls(self) -> list[str]:
        """The ids of its run's calls that wait for a person, or run."""
        return list(self.machine.calls) if self.has_run else []

    def resume(self, record: HookRecord, at: datetime) -> None:
        """Go on with the run, if one does. Where its client has died it ends as lost: whoever takes the session up
        again does not know of it.
        """
        if not self.has_run:
            return
        record.resume_run(self._identity().run_id)
        owner = record.owner
        if owner is not None and owner.is_client and is_gone(owner):
            now = at_ms(at)
            if record.note(_REST_NOTE) == self.run_id.encode():
                self.handle(interface.Reported(now_ms=now, event=RunCompleted()), record)
            else:
                self.handle(interface.OwnerLost(now_ms=now, error=lost_error(owner)), record)
            self.handle(interface.AdapterEnded(now_ms=now), record)

    def rests(self, record: HookRecord) -> None:
        """The client may go on by itself; if it ends instead, the run has not failed."""
        record.keep(_REST_NOTE, self.run_id.encode())

    @property
    def prompt_id(self) -> str:
        """The prompt that its latest run was begun for, where the client names it."""
        return self._prompt_id

    def refuses_on(self, prompt_id: str) -> bool:
        """Whether the run that this prompt of the client began was cancelled: nothing of it runs any more, whatever
        was prompted since, by whom. A hook that names no prompt, or one that nobody made, is of the latest run.
        """
        return (prompt_id if prompt_id in self._prompts else self._prompt_id) in self._cancelled

    def blocked(self, record: HookRecord) -> Block | None:
        """The order that keeps runs of this session from starting, if there is one."""
        context = msgspec.to_builtins(self.context)
        scope = {"tenant": context.get("tenant"), "labels": context.get("labels")}
        return block_of(record.blocks(), run_id=self.run_id, session_id=self.session_id, **scope)

    def begin_run(
        self, record: HookRecord, at: datetime, metadata: dict[str, Any], prompt: str | None, *, by_person: bool
    ) -> Handled:
        """Begin a run, as the one before has ended; returns what `handle` does. A prompt that is no person's is not
        recorded as a message of the user.
        """
        self.runs += 1
        identity = self._identity(self._past.turns, self.machine.seq)
        # `asks`: the client asks its person; nobody else's answer counts but where it `hears` of that
        hears = self.client.hears == "permission" or (self.client.hears == "call" and self.hold_s > 0)
        spec = {"asks": self.provider, "hears": hears, **({"prompt": prompt} if prompt else {})}
        record.begin_run(identity.run_id, self.provider, at, self._redactor.redact(spec, self.session_id))
        run_metadata = {**metadata, **self.rules.metadata, "context": msgspec.to_builtins(self.context)}
        run_metadata["portable_tools"] = portable(self.client.tools)
        self.machine = RunMachine(identity, self.monitor, earlier_grants=self._past.grants, **self._settings())
        self._stored = 0
        now = round(at.timestamp() * 1000)
        words, first = prompt if by_person else None, identity.events_before == 0
        begin = interface.Begin(now_ms=now, prompt=words, first=first, metadata=run_metadata)
        named = interface.Reported(now_ms=now, event=SessionStarted(provider_session_id=self.client_id))
        recorded, wanted = self.handle(begin, record)
        if not self.machine.cancelling:
            more = self.handle(named, record)
            recorded, wanted = [*recorded, *more[0]], [*wanted, *more[1]]
        return recorded, wanted

    def redacted(self, value: Any) -> Any:
        """A value without the secrets that are known by their form, or were seen in this session."""
        return self._redactor.redact(value, self.session_id)

    def was_scheduled(self, prompt: str) -> bool:
        """Whether its model has scheduled a prompt with this text."""
        return self.redacted(prompt) in self._scheduled

    def next_key(self) -> int:
        """The key of one more proposal: earlier ones may still wait for the person."""
        self._keys += 1
        return self._keys

    def handle(self, input: interface.Input, record: HookRecord) -> Handled:
        """Hand an input to the machine; returns what it recorded and the effects that it wants.

        The record counts as durable here: nobody is answered before it is.
        """
        wanted = self._handle(input, record)
        recorded: list[Event] = []
        while events := self.machine.drain_record():
            record.append(events)
            recorded += events
            self._stored += len(events)
            wanted += self._handle(interface.Stored(now_ms=input.now_ms, count=self._stored), record)
        self._learn(recorded)
        return recorded, wanted

    def _handle(self, input: interface.Input, record: HookRecord) -> list[interface.Effect]:
        """Carry out the machine's effects; the store answers at once, because this is within a transaction."""
        wanted: list[interface.Effect] = []
        todo = deque(self.machine.handle(input))
        now, run_id = input.now_ms, self._identity().run_id
        while todo:
            match todo.popleft():
                case interface.Reserve(reservations=reservations):
                    results = tuple(record.reserve(run_id, reservations, now))
                    todo += self.machine.handle(interface.Reserved(now_ms=now, results=results))
                case interface.Settle(used=used):
                    results = tuple(record.settle(run_id, used, now))
                    todo += self.machine.handle(interface.Settled(now_ms=now, results=results))
                case interface.CloseApproval(approval_id=approval_id):
                    answer = record.accepted_answer(approval_id) or NOBODY_IN_TIME
                    todo += self.machine.handle(
                        interface.ApprovalAnswered(now_ms=now, approval_id=approval_id, answer=answer)
                    )
                case effect:
                    wanted.append(effect)
        return wanted

    def waits_for(self, tool_name: str, tool_input: dict[str, Any]) -> str:
        """The approval that a question of the client is about, each once; empty for a question of its own."""
        calls = self.machine.calls
        for request in self.machine.requests:
            call = calls[request.call.id]
            asks = calls.is_same(call, tool_name, self.client.evaluated(tool_name, tool_input, call.given))
            if asks and request.approval_id not in self._waiting_for:
                self._waiting_for.add(request.approval_id)
                return request.approval_id
        return ""

    def _settings(self) -> dict[str, Any]:
        """Those of each run's machine. The client does not say who answers it: where the policy names people, none of
        its answers would count.
        """
        approval = self.rules.compiled.approval
        if self.client.hears == "call" and self.hold_s:
            waiting = msgspec.structs.replace(approval, timeout_s=min(approval.timeout_s, self.hold_s))
            answerable = True
        else:
            waiting = msgspec.structs.replace(approval, timeout_s=_NEVER_S, on_timeout="deny")
            answerable = self.client.asks and approval.approvers is None and not approval.four_eyes
        return {"approval": waiting, "answerable": answerable, "redactor": self._redactor}

    def _identity(self, turns_before: int = 0, events_before: int = 0) -> RunIdentity:
        return RunIdentity(
            run_id=f"{self.session_id}-{self.runs}",
            session_id=self.session_id,
            provider=self.provider,
            gates_all=True,
            turns_before=turns_before,
            events_before=events_before,
        )

    def _number(self, run_id: str) -> int:
        """The number of this run among the client's runs; 0 for somebody else's in the same session."""
        of, _, number = run_id.rpartition("-")
        return int(number) if of == self.session_id and number.isdecimal() else 0

    def _learn(self, events: Iterable[Event]) -> None:
        """Note what later hooks have to know of these events."""
        for event in events:
            self._past.apply(event)
            self.called = self.called or isinstance(event, ToolEvent)
            if isinstance(event, ToolApprovalGranted) and event.by == self.client.by:
                self.approved.add(event.tool_call_id)
            if isinstance(event, ToolCallRequested | ToolCallStarted):
                text = event.tool_input.get(self.client.schedules.get(event.tool_name, ""))
                self._scheduled |= {text} if isinstance(text, str) else set()
            if isinstance(event, ToolCallCompleted) and event.tool_name in self.client.continues_by and event.at:
                self.steered = LastOutput(event.at, event.tool_output)
            if isinstance(event, RunStarted) and (number := self._number(event.run_id)):
                self.runs = max(self.runs, number)
                self._prompt_id, self.run_at = str(event.metadata.get("prompt_id", "")), event.at
                self._prompts |= {self._prompt_id} - {""}
                self._cancelled.discard("")
            elif isinstance(event, RunCancelled):
                self._cancelled.add(self._prompt_id)


def _place(past: Iterable[Event], folder: str, given: RunContext) -> dict[str, Any]:
    """Where the client works: as the session's first run has it, for its shell may have gone elsewhere since."""
    starts = (event.metadata.get("context") for event in past if isinstance(event, RunStarted))
    recorded = [context["workspace"] for context in starts if isinstance(context, dict) and "workspace" in context]
    found = {"workspace": recorded[0] if recorded else folder or msgspec.UNSET, "home": home_of(os.environ)}
    return {name: value for name, value in found.items() if value and getattr(given, name) is msgspec.UNSET}

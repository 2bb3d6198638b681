"""One hook: what it reports to the machine of its session's run, and its answer to the client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from proctor.policies import Decision, ToolCall
from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.events.calls import UNREADABLE, input_digest, rule_name, tell_model_default
from proctor.policies.stack.merge import unit_of
from proctor.policies.values.amounts import used_of
from proctor.supervisor.errors import StartsBlockedError
from proctor.supervisor.machine import interface
from proctor.supervisor.ports.stored_types import ApprovalAnswer, ApprovalRequest, StoredApproval

from ..kit import usage_log as usage
from ..kit.client_tools import runs_in_background
from ..kit.display_text import escape_control_lines
from ..kit.launch_options import USAGE
from .decisions import LastAnswer, Opening
from .messages import CAN_STOP, STOPPED, HookAnswer, HookInput, Kind
from .record import HookRecord
from .session import Handled, HookedSession

USAGE_NOTE = "usage"
ANSWER_NOTE = "answer"
"""The last answer in a session; see `LastAnswer`."""
OPENED_NOTE = "opened"
"""The calls that the client need not ask about, each with why, where it asks by a hook of its own."""
WOKEN_NOTE = "woken"
"""The client's own prompts, each with the person's prompt that it continues."""
MOST_WOKEN = 256
STARTS_BLOCKED = "no run starts at the moment"
APPROVED_BY_HOOK = "approved_by_hook"
SETTINGS_CHANGED = "settings that change during a session apply from the next session on"


class Hook:
    """One hook of one session, answered once. Its events go to `record`; `opening` is the answer to allowed calls."""

    def __init__(
        self, hook_input: HookInput, session: HookedSession, record: HookRecord, at: datetime, opening: Opening
    ) -> None:
        self._client = session.client
        self._input = hook_input
        self._session = session
        self._record = record
        self._at = at
        self._opening = opening
        self._recorded: list[ev.Event] = []
        self._wanted: list[interface.Effect] = []
        self._blocked = False
        self._found = ""
        self._held = ""

    def answer(self) -> HookAnswer:
        """Record what follows from the hook, and return the answer to the client."""
        if self._input.kind is None:
            return HookAnswer()
        handler = _HANDLERS[self._input.kind]
        if self._has_run:
            self._count_usage()
        if self._has_run:
            self._handle(interface.Ticked(now_ms=self._now))
        verdict = handler(self)
        cancelled = any(isinstance(effect, interface.CancelAdapter) for effect in self._wanted)
        refused = any(isinstance(effect, interface.AnswerGate) and effect.answer.stop for effect in self._wanted)
        stop = self._input.kind in CAN_STOP and (cancelled or refused or self._blocked)
        return self._shown(verdict, stop=stop, held=self._held)

    def resolve_held(self, approval: StoredApproval) -> HookAnswer:
        """Answer a hook that waited for this approval, once the approval is answered or expired."""
        if any(request.approval_id == approval.request.approval_id for request in self._session.machine.requests):
            if approval.answer is not None:
                call, given = self._session.machine.calls[approval.request.call.id], self._input.tool_input
                self._answered(
                    approval.request, approval.answer, self._client.evaluated(call.name, given, call.given)
                )
            else:
                self._handle(interface.Ticked(now_ms=self._now))
        verdict = self._outcome(approval)
        stop = any(isinstance(effect, interface.CancelAdapter) for effect in self._wanted)
        stop = stop and self._input.kind in CAN_STOP
        return self._shown(verdict, stop=stop)

    def ended(self, call_id: str, *, ran: bool) -> None:
        """Record the end of a call that no hook reported."""
        current = self._session.machine.calls.get(call_id)
        if current is None or not ran:
            return self._end_calls([call_id], "the client did not run it")
        self._session.supposed.add(call_id)
        self._input = msgspec.structs.replace(
            self._input,
            tool_use_id=call_id,
            tool_name=current.name,
            error="its person interrupted it, or no hook was heard",
        )
        self._failed()

    def _shown(self, verdict: Verdict, *, stop: bool, held: str = "") -> HookAnswer:
        """The answer with text that is safe to display: the client prints it unchanged."""
        explained = verdict[0] == "deny" and self._input.kind == "prompt"  # it is the reason
        notes = () if explained else tuple(map(escape_control_lines, self._notes()))
        return HookAnswer(
            verdict=verdict[0], reason=escape_control_lines(verdict[1]), stop=stop, notes=notes, held=held
        )

    def _outcome(self, approval: StoredApproval) -> Verdict:
        """The answer about a call after an approval request: none if the client's own person answered."""
        gate_answer = next(
            (effect.answer for effect in self._wanted if isinstance(effect, interface.AnswerGate)), None
        )
        call = approval.request.call
        if gate_answer is None:
            is_over = approval.request.run_id != self._session.run_id or not self._has_run
            left_to_it = self._input.kind == "permission" and not is_over
            return _ALLOWED if left_to_it else ("deny", tell_model_default(call.name))
        by = f"approved by {approval.answer.by}" if approval.answer is not None else "nobody answered in time"
        if not gate_answer.allowed:
            return self._keep_denied(call, "not " + by, tell_model=gate_answer.tell_model)
        if self._client.opens == "permission":
            self._keep_opened(call.id, by)
        return self._keep_answer(call, ("allow", f"proctor: {by}"), by)

    @property
    def _now(self) -> int:
        return ev.at_ms(self._at)

    @property
    def _has_run(self) -> bool:
        return self._session.has_run

    @property
    def _woken(self) -> dict[str, str]:
        return msgspec.json.decode(self._record.note(WOKEN_NOTE) or b"{}", type=dict[str, str])

    @property
    def _refuses(self) -> bool:
        """Whether the run of this hook's prompt, or of the prompt that it continues, was cancelled."""
        prompt_id = self._input.prompt_id
        return self._session.refuses_on(self._woken.get(prompt_id, prompt_id))

    def _handle(self, input: interface.Input) -> None:
        """Pass an input to the machine; a run that it cancels is over, because the client's answer is to stop."""
        self._follow(self._session.handle(input, self._record))

    def _follow(self, handled: Handled) -> None:
        recorded, wanted = handled
        self._recorded += recorded
        self._wanted += wanted
        if any(isinstance(effect, interface.CancelAdapter) for effect in wanted):
            self._handle(interface.AdapterEnded(now_ms=self._now))

    def _report(self, event: ev.Event) -> None:
        self._handle(interface.Reported(now_ms=self._now, event=event))

    def _prompted(self) -> Verdict:
        if self._input.agent_id is not None and self._has_run:  # a subagent's, in the run of whoever prompted it
            return _ALLOWED
        self._mark_scheduled()
        if self._input.woken and (self._has_run or self._session.refuses_on("")):
            return self._woken_again()
        self._complete(None)
        if (block := self._session.blocked(self._record)) is not None:
            return "deny", str(StartsBlockedError(block))
        self._begin(self._input.prompt)
        if self._has_run and not self._input.by_person:
            self._report(ev.MessageSent(role="system", content=self._input.prompt))
        return _ALLOWED if self._has_run else ("deny", "; ".join(self._notes()) or STOPPED)

    def _mark_scheduled(self) -> None:
        """Mark a prompt that a model scheduled as no person's, which no hook says. A person may write it, too."""
        by_model = self._session.was_scheduled(self._input.prompt)
        wakes = self._client.scheduled(self._input.transcript_path, by_model)
        if by_model or wakes:
            self._input = msgspec.structs.replace(self._input, by_person=False, woken=self._input.woken or wakes)

    def _woken_again(self) -> Verdict:
        """The client continues an earlier prompt, unless its run was cancelled."""
        woken = {**self._woken, self._input.prompt_id: self._session.prompt_id}
        self._record.keep(WOKEN_NOTE, msgspec.json.encode(dict(list(woken.items())[-MOST_WOKEN:])))
        if not self._has_run:
            return "deny", STOPPED
        self._report(ev.MessageSent(role="system", content=self._input.prompt))
        return _ALLOWED

    def _proposed(self) -> Verdict:
        """Answer a proposed call by the gate, unless its run was cancelled or no run may start."""
        hook_input, session = self._input, self._session
        self._end_logged()
        self._end_with_their_scripts()
        call_id = hook_input.tool_use_id or f"{hook_input.tool_name}-{session.machine.seq + 1}"
        call = ToolCall(id=call_id, name=hook_input.tool_name, input=hook_input.tool_input, turn=session.machine.turn)
        if self._refuses:
            if call.name in self._client.ends_by:
                return _ALLOWED
            if self._has_run:  # of a subagent, or of another client of the session, that goes on
                return self._keep_denied(call, "its run was cancelled")
        elif not self._has_run:
            if session.blocked(self._record) is not None:
                self._blocked = True
                return self._keep_answer(call, ("deny", STARTS_BLOCKED), STARTS_BLOCKED)
            self._begin(None)
            self._count_usage()
        key = session.next_key()
        with session.monitor.assuming_granted(session.machine.requests):
            self._handle(interface.Proposed(now_ms=self._now, key=key, call=call))
        for effect in self._wanted:
            if isinstance(effect, interface.AnswerGate) and effect.key == key:
                if effect.answer.allowed:
                    return self._allowed(call)
                return self._keep_denied(call, tell_model=effect.answer.tell_model)
        if self._waiting(call.id) is None:
            return self._keep_denied(call, "its run was cancelled")
        if self._client.hears == "call" and session.hold_s:
            self._held = next(r.approval_id for r in session.machine.requests if r.call.id == call.id)
        return self._keep_answer(call, ("ask", _question(session.monitor.latest, call)))

    def _allowed(self, call: ToolCall) -> Verdict:
        """The answer to the client about an allowed call: nothing if the client decides."""
        monitor = self._session.monitor
        assert monitor.latest is not None
        admitted, began_in = monitor.admitted, self._session.workspace
        opened, why = self._opening.decide(call, monitor.latest, admitted, self._input, began_in)
        if opened and self._client.opens == "permission":
            self._keep_opened(call.id, why)
        spared = opened and self._client.opens is not None
        return self._keep_answer(call, ("allow", f"proctor: {why}") if spared else _ALLOWED, why)

    def _keep_opened(self, call_id: str, why: str) -> None:
        """Remember that the client need not ask about a call; of other calls, remember only open questions."""
        opened = _opened_calls(self._record)
        still = {id: opened[id] for id in self._session.machine.calls if id in opened}
        self._record.keep(OPENED_NOTE, msgspec.json.encode({**still, call_id: why}))

    def _on_permission(self) -> Verdict:
        """The client is about to ask its person about a call: answer for the person if an allow list allows the call,
        or if the run was cancelled.
        """
        hook_input, opened = self._input, _opened_calls(self._record)
        part = hook_input.tool_input
        if not self._has_run and self._refuses:
            return "deny", tell_model_default(hook_input.tool_name)
        if self._client.hears == "permission":
            self._held = self._session.waits_for(hook_input.tool_name, part) if self._has_run else ""
            return _ALLOWED
        if not self._has_run or part.get("description"):  # it says why it leaves the client's sandbox
            return _ALLOWED
        calls, alike = self._session.machine.calls, []
        for call_id, call in calls.items():
            named = hook_input.tool_use_id in ("", call_id) and call.name == hook_input.tool_name
            if named and call.runs and calls.is_same(call, call.name, {**call.given, **part}):
                alike.append(call_id)
        why = next((opened[call_id] for call_id in alike if call_id in opened), "")
        if not why or any(self._client.may_leave_sandbox(hook_input, call_id) for call_id in alike):
            return _ALLOWED
        return "allow", f"proctor: {why}"

    def _keep_denied(self, call: ToolCall, *because: str, tell_model: str | None = None) -> Verdict:
        return self._keep_answer(call, ("deny", tell_model or tell_model_default(call.name)), *because)

    def _keep_answer(self, call: ToolCall, verdict: Verdict, *because: str) -> Verdict:
        """Remember the answer about a call, and the rules that decided, if there is no other cause."""
        decision = self._session.monitor.latest
        if not because and decision is not None and decision.tool_call_id == call.id:
            because = tuple(f"{rule_name(v.policy, v.rule)}: {v.message}" for v in decision.violations)
        answered = LastAnswer(
            at=self._at.isoformat(),
            run_id=self._session.run_id,
            tool_name=call.name,
            tool_call_id=call.id,
            tool_input=self._session.redacted(call.input),
            answer=verdict[0] if verdict != _ALLOWED else "left to the client",
            because=tuple(self._session.redacted(list(because))),
        )
        self._record.keep(ANSWER_NOTE, msgspec.json.encode(answered))
        return verdict

    def _ran(self) -> None:
        """Make sure that the event log has the call's start, with the input that ran."""
        hook_input, session = self._input, self._session
        if not self._has_run:
            return
        calls = session.machine.calls
        current = calls.get(self._call_id)
        name, tool_input = hook_input.tool_name, hook_input.tool_input
        if current is not None:
            tool_input = self._client.evaluated(name, tool_input, current.given) if tool_input else current.given
        if waiting := self._waiting(self._call_id):
            granted = input_digest(tool_input) == waiting.input_digest
            self._answered(waiting, self._by_the_client(waiting, granted=granted), tool_input)
        started = ev.ToolCallStarted(
            tool_call_id=self._call_id, tool_name=name, tool_input=tool_input, turn=session.machine.turn
        )
        if current is not None and not calls.is_same(current, name, tool_input):
            self._handle(interface.InputChanged(now_ms=self._now, event=started))
        else:
            self._report(started)

    @property
    def _call_id(self) -> str:
        """The call of an outcome. If the client does not say: the first one without an outcome, of this tool and
        input, else of this tool.
        """
        if self._input.tool_use_id or self._found:
            return self._input.tool_use_id or self._found
        calls, name = self._session.machine.calls, self._input.tool_name
        alike = [call for call in calls.values() if call.name == name]
        same = [call for call in alike if calls.is_same(call, name, self._input.tool_input)]
        self._found = next((call.id for call in [*same, *alike]), f"{name}-unasked")
        return self._found

    def _is_recorded(self) -> bool:
        """Whether the outcome of a call is recorded: a hook may come twice, or after the log was read. What has
        completed was not as it was supposed to be.
        """
        hook_input, calls = self._input, self._session.machine.calls
        if not self._has_run or hook_input.tool_use_id in (*calls, ""):
            return False
        if hook_input.kind == "completed" and hook_input.tool_use_id in self._session.supposed:
            return False
        with suppress(*UNREADABLE):
            return calls.relate(hook_input.tool_use_id, hook_input.tool_name, hook_input.tool_input, -1) == "ended"
        return False

    def _completed(self) -> Verdict:
        if self._is_recorded():
            return _ALLOWED
        hook_input = self._input
        code = self._client.exit_code(hook_input)
        if code:
            error = {"exit_code": code, "output": hook_input.tool_response}
            self._input = msgspec.structs.replace(hook_input, error=error)
            return self._failed()
        self._ran()
        outcome = ev.ToolCallCompleted(
            tool_call_id=self._call_id,
            tool_name=hook_input.tool_name,
            tool_output=hook_input.tool_response,
            unfinished=code is None
            or runs_in_background(hook_input.tool_name, hook_input.tool_input, hook_input.tool_response),
        )
        if self._has_run:
            self._report(outcome)
        return _ALLOWED

    def _failed(self) -> Verdict:
        if self._is_recorded():
            return _ALLOWED
        self._ran()
        hook_input = self._input
        if self._has_run:
            error = hook_input.error
            self._report(ev.ToolCallFailed(tool_call_id=self._call_id, tool_name=hook_input.tool_name, error=error))
        return _ALLOWED

    def _batch(self) -> Verdict:
        """The calls of a turn have ended."""
        ids = [call.tool_use_id for call in self._input.tool_calls]
        self._end_calls(ids)
        for call_id in self._session.approved.intersection(ids):
            if self._has_run and self._client.hook_answered(self._input.transcript_path, call_id):
                message = f"a hook of {self._client.title} approved call `{call_id}`, not the person who was asked"
                self._report(ev.ErrorOccurred(code=APPROVED_BY_HOOK, message=message))
        if self._has_run and self._input.agent_id is None:
            self._report(ev.TurnCompleted(turn=self._session.machine.turn))
        return _ALLOWED

    def _end_logged(self) -> None:
        """Record the calls that have ended according to the client's log, but that no hook reported."""
        runs = {call_id: call for call_id, call in self._session.machine.calls.items() if call.runs}
        if self._client.logged_ends is None or not runs:
            return
        for call_id, end in self._client.logged_ends(self._input, runs).items():
            if end.failed:
                self._end_calls([call_id], end.output)
            elif self._has_run:
                name = runs[call_id].name
                self._report(ev.ToolCallCompleted(tool_call_id=call_id, tool_name=name, tool_output=end.output))

    def _end_with_their_scripts(self) -> None:
        """Record the end of calls whose script has ended, and remember which scripts may have made this one. A
        command can outlive its script; then its own end is reported.
        """
        log, scripts = self._input.transcript_path, self._client.scripts(self._input)
        tool = self._client.tool(self._input.tool_name)
        outlives = tool is not None and "bash" in tool.every_act
        if scripts:
            made_by = {id: by for id, by in self._session.made_by.items() if id in self._session.machine.calls}
            self._end_calls([id for id, (of, by) in made_by.items() if of == log and not by & scripts])
            this = {} if outlives else {self._input.tool_use_id: (log, scripts)}
            self._session.made_by = made_by | this

    def _end_calls(self, call_ids: Iterable[str], error: Any = "no hook reported that it ran") -> None:
        """Record those of these calls that have no outcome as failed: most of them never ran."""
        for call_id in call_ids:
            if not self._has_run:
                break
            current = self._session.machine.calls.get(call_id)
            if waiting := self._waiting(call_id):
                self._answered(waiting, self._by_the_client(waiting, granted=False))
            elif current is not None and current.runs:
                self._session.supposed.add(call_id)
                self._report(ev.ToolCallFailed(tool_call_id=call_id, tool_name=current.name, error=error))

    def _interrupted(self) -> Verdict:
        """No hook reports the calls that were running at an interrupt."""
        for call_id in list(self._session.machine.calls):
            self.ended(call_id, ran=self._waiting(call_id) is None)
        return _ALLOWED

    def _stopped(self) -> Verdict:
        self._end_logged()
        if "batch" not in self._client.events.values():
            self._end_calls(list(self._session.machine.calls))
        if self._has_run:
            self._report(ev.TurnCompleted(turn=self._session.machine.turn))
        if not self._input.awaits and not self._client.continues(self._input.transcript_path, self._session.steered):
            self._complete(self._input.last_assistant_message, self._input.error)
        return _ALLOWED

    def _session_over(self) -> Verdict:
        if self._has_run and self._input.reason in self._client.rests_for:
            self._session.rests(self._record)
        elif self._has_run:
            reason = f"the session ended: {self._input.reason or 'no reason given'}"
            self._handle(interface.CancelAsked(now_ms=self._now, reason=reason))
        return _ALLOWED

    def _settings_changed(self) -> Verdict:
        """A repository's settings, or the agent, could remove the hooks."""
        return _ALLOWED if self._input.own_settings else ("deny", SETTINGS_CHANGED)

    def _waiting(self, call_id: str) -> ApprovalRequest | None:
        """The question the person is being asked about this call, if any."""
        if not self._session.runs:
            return None
        return next((r for r in self._session.machine.requests if r.call.id == call_id), None)

    def _answered(
        self, request: ApprovalRequest, answer: ApprovalAnswer, tool_input: dict[str, Any] | None = None
    ) -> None:
        approval_id = request.approval_id
        answered = interface.ApprovalAnswered(
            now_ms=self._now, approval_id=approval_id, answer=answer, tool_input=tool_input
        )
        self._handle(answered)

    def _by_the_client(self, request: ApprovalRequest, *, granted: bool) -> ApprovalAnswer:
        """The answer of the client's own person, as the call's end shows it, unless another was accepted before."""
        accepted = self._record.accepted_answer(request.approval_id)
        return accepted or ApprovalAnswer(granted=granted, by=self._client.by)

    def _begin(self, prompt: str | None) -> None:
        metadata: dict[str, Any] = {"prompt_id": self._input.prompt_id, "cwd": self._input.cwd}
        by_person = self._input.by_person
        self._follow(self._session.begin_run(self._record, self._at, metadata, prompt, by_person=by_person))

    def _complete(self, output: str | None, error: Any = None) -> None:
        if self._has_run:
            failed = ev.RunFailed(error={"message": output or str(error), "code": str(error)})
            self._report(failed if error else ev.RunCompleted(output=output))
        if self._has_run:
            self._handle(interface.AdapterEnded(now_ms=self._now))

    def _count_usage(self) -> None:
        """Count the usage in the client's log.

        Raises EventError for a call that a limit on usage decides on, when the log cannot be read.
        """
        hook_input, session = self._input, self._session
        for event in hook_input.used:
            if self._has_run:
                self._report(event)
        if self._client.usage is None:
            return
        state = self._record.note(USAGE_NOTE)
        log = self._client.usage(hook_input.transcript_path, state, session.run_at or self._at)
        limited = hook_input.kind == "call" and bool(session.rules.limits & USAGE)
        awaited: dict[str, Any] = {}
        if limited:
            awaited = {"call_id": hook_input.tool_use_id, "wait_s": usage.WAIT_S}
        elif hook_input.kind == "stop":
            awaited = {"message": hook_input.last_assistant_message or "", "wait_s": usage.WAIT_AT_THE_END_S}
        try:
            news = log.news(may_be_missing=not session.called, **awaited)
        except EventError:
            if limited:
                raise
            return
        for event in news:
            if self._has_run:
                self._report(event)
        if log.state != state:
            self._record.keep(USAGE_NOTE, log.state)

    def _notes(self) -> Iterator[str]:
        """Notes for the person: warnings and denials, why a run failed and, at the end, all findings."""
        at_the_end = self._input.kind == "stop"
        for event in self._recorded:
            if isinstance(event, ev.PolicyViolated) and (at_the_end or event.action != "request_approval"):
                yield f"policy `{event.policy}`, rule `{event.rule}`: {event.message}"
            elif isinstance(event, ev.BudgetWarned):
                unit = unit_of(self._session.rules.policy, event.limit)
                yield f"`{event.limit}`: {used_of(unit, event.used, event.max)} used"
            elif isinstance(event, ev.ErrorOccurred) and event.code == APPROVED_BY_HOOK:
                yield event.message
            elif isinstance(event, ev.RunFailed):
                yield f"the run failed: {event.error.get('message', 'its cause is not known')}"
        unpriced = self._session.monitor.metadata.get("unpriced") if at_the_end else None
        if unpriced and "max_cost_usd" in self._session.rules.limits:
            models = ", ".join(f"`{model}`" for model in unpriced)
            yield f"no price of {models} is known, so `max_cost_usd` is not enforced; put one into `prices`"


def _opened_calls(record: HookRecord) -> dict[str, str]:
    return msgspec.json.decode(record.note(OPENED_NOTE) or b"{}", type=dict[str, str])


def _question(decision: Decision | None, call: ToolCall) -> str:
    """The rules that ask the person, and their question; the person reads this text."""
    violations = [v for v in decision.violations if v.action == "request_approval"] if decision is not None else []
    rules = "; ".join(f"policy `{v.policy}`, rule `{v.rule}`: {v.tell_model or v.message}" for v in violations)
    return f"proctor asks about `{call.name}`: {rules}" if rules else f"proctor asks about `{call.name}`"


Verdict = tuple[Any, str]
"""`allow`, `ask` or `deny`, and the public reason."""
_ALLOWED: Verdict = ("allow", "")
_HANDLERS: dict[Kind, Callable[[Hook], Verdict]] = {
    "prompt": Hook._prompted,
    "call": Hook._proposed,
    "permission": Hook._on_permission,
    "completed": Hook._completed,
    "failed": Hook._failed,
    "batch": Hook._batch,
    "interrupt": Hook._interrupted,
    "stop": Hook._stopped,
    "session_end": Hook._session_over,
    "settings": Hook._settings_changed,
}

"""What one hook means for its session: what is recorded, and what the client is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from proctor.policies.stack.limits import figure
from proctor.policies.stream.calls import Decision, ToolCall, tell_model_default
from proctor.policies.stream.events import (
    RunCancelled,
    RunCompleted,
    ToolApprovalDenied,
    ToolApprovalRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallRequested,
    TurnCompleted,
)
from proctor.supervisor.machine.enforcement import denied, reach, warned

from .answers import Answer
from .keeping import STOPPING, Keeping
from .session import OpenCall, granted, started


class Deciding(Keeping):
    """Decides one hook of one session."""

    def answer(self) -> Answer:
        """Record what follows from the hook and say what the client is told."""
        handler = _HANDLERS.get(self._asked.hook_event_name)
        self._count_usage()
        answer = Answer() if handler is None else handler(self)
        return msgspec.structs.replace(answer, notes=(*self._noticed(), *answer.notes, *self._warnings()))

    def _noticed(self) -> Iterator[str]:
        """What the person should know: all that only warns and, at the end, whatever was found."""
        at_the_end = self._asked.hook_event_name == "Stop"
        for violation in self._violations:
            if at_the_end or violation.action == "warn":
                yield f"policy `{violation.policy}`: {violation.message}"

    def _warnings(self) -> Iterator[str]:
        for warning in self._session.monitor.warnings():
            self._add(warned(warning))
            yield f"`{warning.limit}`: {figure(warning.used)} of {figure(warning.max)} used"

    def _prompted(self) -> Answer:
        self._end_run(RunCompleted())
        self._begin_run()
        return Answer()

    def _proposed(self) -> Answer:
        asked, session = self._asked, self._session
        call = ToolCall(id=asked.tool_use_id, name=asked.tool_name, input=asked.tool_input, turn=session.turn)
        if session.ended is RunCancelled and session.prompt_id == asked.prompt_id:
            return Answer(verdict="deny", reason=tell_model_default(call.name), stop=True)
        self._go_on()
        if call.id in session.open:
            return self._repeated(session.open[call.id], call)
        self._pass_time()
        self._add(ToolCallRequested(tool_call_id=call.id, tool_name=call.name, tool_input=call.input, turn=call.turn))
        session.suppose_answered()
        return self._decided(call, session.monitor.propose(call))

    def _repeated(self, known: OpenCall, call: ToolCall) -> Answer:
        """The same call asked about again: it counts once, and any other under its id is refused."""
        if not known.started or (known.call.name, known.call.input) != (call.name, call.input):
            return Answer(verdict="deny", reason=tell_model_default(call.name))
        return Answer()

    def _decided(self, call: ToolCall, decision: Decision) -> Answer:
        for violation in decision.violations:
            self._note(violation)
        if decision.action in ("allow", "warn"):
            self._write(started(call))
            return Answer()
        public = decision.tell_model or tell_model_default(call.name)
        if decision.action == "request_approval":
            self._write(self._request(call, decision))
            return Answer(verdict="ask", reason=public)
        self._write(denied(call, decision.action, public))
        cause = next((v for v in decision.violations if v.action == "cancel"), None)
        if cause is None:
            return Answer(verdict="deny", reason=public)
        self._cancel(cause)
        return Answer(verdict="deny", reason=public, stop=True)

    def _request(self, call: ToolCall, decision: Decision) -> ToolApprovalRequested:
        """The client asks its person; nobody else can answer, so the request stands in the record as a signal."""
        because = next(v for v in decision.violations if v.action == "request_approval")
        return ToolApprovalRequested(
            approval_id=f"{self._session.run_id}.{call.id}",
            tool_call_id=call.id,
            tool_name=call.name,
            tool_input=call.input,
            policy_name=because.policy,
            violation_kind=because.kind,
            reason=because.reason or because.message,
            held=False,
        )

    def _completed(self) -> Answer:
        asked = self._asked
        if not self._ran():
            return Answer()
        self._add(
            ToolCallCompleted(
                tool_call_id=asked.tool_use_id, tool_name=asked.tool_name, tool_output=asked.tool_response
            )
        )
        return self._after_the_fact()

    def _failed(self) -> Answer:
        asked = self._asked
        if not self._ran():
            return Answer()
        self._add(ToolCallFailed(tool_call_id=asked.tool_use_id, tool_name=asked.tool_name, error=asked.error))
        return self._after_the_fact()

    def _ran(self) -> bool:
        """See that the record says the call ran, with the input it ran with; False when its run is over."""
        asked, session = self._asked, self._session
        if session.ended is not None or asked.tool_use_id in session.over:
            return False
        self._go_on()
        known = session.open.get(asked.tool_use_id)
        call = ToolCall(
            id=asked.tool_use_id,
            name=asked.tool_name,
            input=asked.tool_input or (known.call.input if known else {}),
            turn=known.call.turn if known else session.turn,
        )
        if known is not None and known.approval is not None:
            self._add(granted(known.approval))
        if known is None or not known.started or known.call.input != call.input:
            self._add(started(call))
        return True

    def _after_the_fact(self) -> Answer:
        stops = (v for v in self._violations if reach(v, gates_all=True) in STOPPING)
        cause = next(stops, None)
        if cause is None:
            return Answer()
        self._cancel(cause)
        return Answer(stop=True)

    def _batch(self) -> Answer:
        """A response's calls are over: one without an outcome never ran, whoever refused it."""
        if self._session.ended is not None:
            return Answer()
        for call in self._asked.tool_calls:
            known = self._session.open.get(call.tool_use_id)
            if known is None:
                continue
            if known.approval is not None:
                self._add(self._refused(known.approval))
                self._add(denied(known.call, "approval_denied", ""))
            else:
                error = "the client did not run it"
                self._add(ToolCallFailed(tool_call_id=call.tool_use_id, tool_name=known.call.name, error=error))
        if self._asked.agent_id is None:
            self._add(TurnCompleted(turn=self._session.turn))
        return self._after_the_fact()

    def _refused(self, asked: ToolApprovalRequested) -> ToolApprovalDenied:
        return ToolApprovalDenied(
            approval_id=asked.approval_id,
            tool_call_id=asked.tool_call_id,
            tool_name=asked.tool_name,
            tool_input=asked.tool_input,
            policy_name=asked.policy_name,
            violation_kind=asked.violation_kind,
            by="claude-code",
        )

    def _stopped(self) -> Answer:
        if self._session.ended is None and self._session.runs:
            self._add(TurnCompleted(turn=self._session.turn))
        self._end_run(RunCompleted(output=self._asked.last_assistant_message))
        unpriced = self._session.monitor.metadata.get("unpriced")
        if not unpriced or "max_cost_usd" not in self._limits():
            return Answer()
        models = ", ".join(f"`{model}`" for model in unpriced)
        return Answer(notes=(f"no price of {models} is known, so `max_cost_usd` does not hold; say one in `prices`",))

    def _session_over(self) -> Answer:
        self._end_run(RunCancelled(reason=f"the session ended: {self._asked.reason or 'no reason given'}"))
        return Answer()


_HANDLERS: dict[str, Callable[[Deciding], Answer]] = {
    "UserPromptSubmit": Deciding._prompted,
    "PreToolUse": Deciding._proposed,
    "PostToolUse": Deciding._completed,
    "PostToolUseFailure": Deciding._failed,
    "PostToolBatch": Deciding._batch,
    "Stop": Deciding._stopped,
    "SessionEnd": Deciding._session_over,
}

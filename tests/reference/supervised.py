"""Whole supervised sessions: ids used again, approvals that come late or never, inputs rewritten on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest

from .trace import Call
from .twins import Step, Twins


class Supervised(Twins):
    """Plays the steps of supervised sessions too.

    `told` is what events say of a call that waits; `begun` the last response that the stream told of, and when.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.waiting: list[tuple[Call, dict[str, Any], Step]] = []
        self.begun = (0, 0)
        self.taken: list[Call] = []

    def _begin_run(self) -> None:
        self.waiting.clear()
        self.begun = (0, 0)
        super()._begin_run()

    def _called(self, step: Step) -> tuple[Call, dict[str, Any]]:
        before = self.turn
        call, fields = super()._called(step)
        if step.begins and self.turn > before:
            self.begun = (self.turn, self.world.tick())
            self._observe(ev.TurnStarted(turn=self.turn - self.offset), [])
        waiting = {waits.id for waits, _, _ in self.waiting}
        earlier = [c for c in self.world.calls if c.run == self.run and c is not call and c.id not in waiting]
        if step.reuse and earlier:
            self.seen["an id again"] += 1
            call.id = fields["tool_call_id"] = earlier[step.n % len(earlier)].id
        return call, fields

    def _last(self, call: Call) -> Call | None:
        """The call that had the id before."""
        return next((c for c in reversed(self.world.calls) if c is not call and _same_id(c, call)), None)

    def _is_new(self, call: Call, last: Call | None) -> bool:
        """Whether the id is free: unused in this run, or of a response before the one that asks."""
        if last is None:
            return True
        turn, at = self.begun
        return last.ended is not None and not last.lost and last.ended < at and call.turn >= turn

    def _refused(self, call: Call) -> bool:
        """Whether the call was refused for its id."""
        return any(call is taken for taken in self.taken)

    def _expected(self, call: Call) -> list[tuple[str, str]]:
        return [("tool_call_id", "deny")] if self._refused(call) else super()._expected(call)

    def _ask(self, step: Step) -> None:
        shown = step.tool in self.monitor.narrow([step.tool]) or not step.next_turn or step.sub
        call, fields = self._called(step)
        last = self._last(call)
        free = self._is_new(call, last) or (last is not None and last.ended is not None and _same(last, call))
        self.record.append(ev.ToolCallRequested(**fields))
        if free:
            action = self._propose(call, fields)
        else:
            self.seen["an id refused"] += 1
            self.taken.append(call)
            self.world.calls.remove(call)
            action = self._propose(call, fields)

        assert shown or action in ("deny", "cancel"), f"narrow hid a call that is answered {action}"

        self._follow(action, call, fields, step)

    def _follow(self, action: str, call: Call, fields: dict[str, Any], step: Step) -> None:
        self.seen[action] += 1
        if action == "request_approval":
            call.shown |= self.asking
            held = self._approval(call)
            self._observe(ev.ToolApprovalRequested(**held, tool_input=call.input), [])
            self.waiting.append((call, fields, step))
            if step.approval != "left":
                self._answered(step)
        elif action in ("allow", "warn"):
            call.started = self.world.tick()
            self._observe(ev.ToolCallStarted(**fields), [])
            self._end_of(self._rewritten(call, fields, step), step)
        else:
            self._refuse(call)

    def _answer(self, step: Step) -> None:
        """Somebody answers the n-th call that waits, or its time is up."""
        if self.waiting:
            self.seen["a late answer"] += 1
            self.waiting.append(self.waiting.pop(step.n % len(self.waiting)))
            self._answered(step)

    def _answered(self, step: Step) -> None:
        call, fields, first_step = self.waiting.pop()
        held = self._approval(call)
        granted = ev.ToolApprovalGranted(**held, input_digest=input_digest(call.input))
        if step.approval == "granted":
            self._observe(granted, [])
            call.approved = True
            self.unanswered.pop(call.id, None)
            self._follow(self._propose(call, fields), call, fields, replace(first_step, approval="left"))
            return
        self.seen[step.approval] += 1
        call.approved, call.shown = False, frozenset()  # and what somebody agreed to before is over with it
        self._unapproved(call)
        self._observe((ev.ToolApprovalExpired if step.approval == "expired" else ev.ToolApprovalDenied)(**held), [])
        if step.reuse:  # an answer that comes after the other
            self._observe(granted, [])
            action = self._propose(call, fields)
            if action in ("allow", "warn"):  # what was requested has come about meanwhile
                self._follow(action, call, fields, first_step)
                return
        self._refuse(call)
        if step.begins:
            self._observe(granted, [])

    def _refuse(self, call: Call) -> None:
        denied = ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.tool, decision="deny")
        self._unapproved(call)
        if not self._refused(call):
            call.denied = self.world.tick()
            call.approved = False
        self._observe(denied, [] if self._refused(call) else self.engine.tripped_now(self.world))

    def _approval(self, call: Call) -> dict[str, Any]:
        return {
            "approval_id": f"a-{call.id}-{call.requested}-{len(call.shown)}",
            "tool_call_id": call.id,
            "tool_name": call.tool,
        }

    def _rewritten(self, call: Call, fields: dict[str, Any], step: Step) -> Call:
        """The call that runs: another one if it starts with another input than the one allowed."""
        ran = None if step.ran is None else replace(call, input=step.ran)
        if ran is None or _same(ran, call):
            return call
        self.seen["an input rewritten"] += 1
        call.lost = True
        return self._started(ran, {**fields, "tool_input": ran.input})

    def _started(self, call: Call, fields: dict[str, Any]) -> Call:
        """A call that was not let through runs."""
        made = replace(call, requested=self.world.tick(), started=None, approved=False, shown=frozenset())
        self.world.calls = [*(c for c in self.world.calls if c is not call), made]
        self._observe(ev.ToolCallStarted(**fields), [id for id, _ in self.engine.judge(self.world, made)])
        made.started = self.world.tick()
        return made

    def _saw(self, step: Step) -> None:
        before = self.turn
        call, fields = self._called(step)
        last = self._last(call)
        if last is not None and not self._is_new(call, last) and not last.lost and _same(last, call):
            self.world.calls.remove(call)
            fields["turn"] = last.turn - self.offset  # of the response that proposed it; begins no other
            if self.begun[0] <= before:
                self.turn = before
            if last.denied is None or last.started is not None:
                self.seen["a start told again"] += 1
                self._observe(ev.ToolCallStarted(**fields), [])
                return
            self.seen["ran though refused"] += 1
            self._observe(ev.ToolCallStarted(**fields), [id for id, _ in self.engine.judge(self.world, last)])
            last.started = self.world.tick()
            self._end_of(last, step)
            return
        if last is not None and last.ended is None:
            last.lost = True
        self._end_of(self._started(call, fields), step)


def _same_id(one: Call, other: Call) -> bool:
    return (one.run, one.id) == (other.run, other.id)


def _same(one: Call, other: Call) -> bool:
    """The same tool with the same input; 7.0 is 7."""
    return one.tool == other.tool and _text(one.input) == _text(other.input)


def _text(value: Any) -> str:
    """A value as a text, in which only whole numbers written in two ways are the same."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_text(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)

"""What an agent reports, as events.

The protocol does not say where a model response begins. A response is taken to begin with the prompt, and
with the first words that follow a call's outcome: so there may have been more of them than are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proctor.policies.errors import EventError
from proctor.policies.stream.events import (
    Event,
    MessageReceived,
    MessageStreamed,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
)

from .calls import FINISHED, AcpCall, output_of, parent_of, shows_output
from .usage import CostMeter

_QUIET: Final = frozenset(
    (
        "available_commands_update", "config_option_update", "current_mode_update", "session_info_update",
        "user_message_chunk",
    )
)  # fmt: skip
"""Updates that say nothing about what the agent does."""


class AcpTranslation:
    """The state it takes to turn a session's updates into events.

    A call the gate allowed is already recorded as started; one that runs without having been asked about is
    reported as started here, so that it is judged all the same.

    Args:
        cost: the session's running cost.

    Attributes:
        interrupted: the prompt is being cancelled; an outcome says nothing any more of what a call did, since
            agents report calls they have cut off as completed.
    """

    def __init__(self, cost: CostMeter) -> None:
        self.cost = cost
        self.calls: dict[str, AcpCall] = {}
        self.turn = 0
        self.output = ""
        self.interrupted = False
        self._text = ""
        self._in_turn = False
        self._outcomes = False

    def events(self, update: Mapping[str, Any]) -> Iterator[Event]:
        """The events of one update; one that makes no sense is kept as it came.

        Raises EventError for a cost that cannot be true.
        """
        try:
            yield from self._read(update)
        except EventError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError):
            yield _kept(update)

    def _read(self, update: Mapping[str, Any]) -> Iterator[Event]:
        kind = update.get("sessionUpdate")
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk" if parent_of(update) is not None:
                yield MessageStreamed(role="system")  # a sub-agent's words are no response of its parent's
            case "agent_message_chunk":
                yield from self._words(update.get("content"))
            case "agent_thought_chunk":
                yield from self.response_begins(speaks=True)
                yield MessageStreamed(role="system")  # not text, but a sign of life
            case "tool_call" | "tool_call_update":
                yield from self._call(update)
            case "usage_update":
                if (used := self.cost.take(update)) is not None:
                    yield used
            case _ if kind not in _QUIET:
                yield _kept(update)

    def past(self, update: Mapping[str, Any]) -> None:
        """Take in an update about what happened before this run."""
        if update.get("sessionUpdate") == "usage_update":
            self.cost.take(update)

    def call_of(self, fields: Mapping[str, Any], *, begins: bool = False) -> AcpCall:
        """The call an update or a question is about; the first one tells what it is.

        Args:
            fields: the update or the question.
            begins: it may be about a call that begins: an id whose call is over is then another call's.
        """
        call_id = str(fields.get("toolCallId") or "")
        if call_id not in self.calls or (begins and self.calls[call_id].over):
            self.calls[call_id] = AcpCall(id=call_id)
            self.calls[call_id].hear(fields)
        return self.calls[call_id]

    def response_begins(self, *, speaks: bool = False) -> Iterator[Event]:
        """A sign of the model; words after an outcome are a new response."""
        if speaks and self._outcomes:
            yield from self.response_ends()
        if not self._in_turn:
            self._in_turn = True
            self.turn += 1
            yield TurnStarted(turn=self.turn)

    def response_ends(self) -> Iterator[Event]:
        """The response going on, if any, is over."""
        yield from self.message()
        self._outcomes = False
        if self._in_turn:
            self._in_turn = False
            yield TurnCompleted(turn=self.turn)

    def message(self) -> Iterator[Event]:
        """The words since the last message, as one."""
        if self._text:
            self.output, self._text = self._text, ""
            yield MessageReceived(content=self.output)

    def ungated(self, call: AcpCall) -> Iterator[Event]:
        """A call that runs without having been put to the gate."""
        if not call.proposals and not call.reported:
            call.reported = True
            yield ToolCallStarted(
                tool_call_id=call.id,
                tool_name=call.name,
                tool_input=call.input,
                turn=self.turn,
                parent_tool_call_id=call.parent,
            )

    def given_up(self) -> Iterator[Event]:
        """Calls that run and of which nothing more will be heard."""
        for call in self.calls.values():
            if not call.over:
                call.over = True
                yield from self._failures(call, {"message": "ended with the run"})

    def _words(self, content: Any) -> Iterator[Event]:
        yield from self.response_begins(speaks=True)
        if isinstance(content, dict) and content.get("type") == "text":
            text = str(content.get("text") or "")
            self._text += text
            yield MessageStreamed(delta=text)
        else:
            yield from self.message()
            yield MessageReceived(content=[content])

    def _call(self, update: Mapping[str, Any]) -> Iterator[Event]:
        before = self.calls.get(str(update.get("toolCallId") or ""))
        call = self.call_of(update, begins=update.get("sessionUpdate") == "tool_call")
        call.hear(update)
        if call is not before:
            yield from self.response_begins()
            yield from self.message()
        if call.over:
            return
        status = update.get("status")
        if status in FINISHED:
            call.over = True
            self._outcomes = self._outcomes or call.parent is None
            yield from self._outcome(call, update)
        elif status == "in_progress" and shows_output(update):
            yield from self.ungated(call)

    def _outcome(self, call: AcpCall, update: Mapping[str, Any]) -> Iterator[Event]:
        if call.refused:
            yield from self._failures(call, {"message": "refused later"})
            return
        yield from self.ungated(call)
        output = output_of(update)
        if self.interrupted:
            yield from self._failures(call, {"message": "ended with the run", "output": output})
            return
        if update.get("status") == "failed":
            yield from self._failures(call, output)
            return
        for call_id, name in self._running(call):
            yield ToolCallCompleted(tool_call_id=call_id, tool_name=name, tool_output=output)

    def _failures(self, call: AcpCall, error: Any) -> Iterator[Event]:
        for call_id, name in self._running(call):
            yield ToolCallFailed(tool_call_id=call_id, tool_name=name, error=error)

    def _running(self, call: AcpCall) -> list[tuple[str, str]]:
        """The ids and names under which a call was started."""
        running = [(call_id, call.proposals[call_id][0]) for call_id in call.allowed]
        return [*running, *([(call.id, call.name)] if call.reported else [])]


def _kept(update: Mapping[str, Any]) -> Unrecognized:
    # its own prefix: an update must not read back as an event of ours
    return Unrecognized(raw={"type": f"acp.{update.get('sessionUpdate')}", "update": dict(update)})

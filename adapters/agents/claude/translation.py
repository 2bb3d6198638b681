"""The client's records as events. Pure: a record in, the events it means out.

The prompt and the calls themselves are the supervisor's to record; a `user` record of the client holds tool
results, a sub-agent's prompt or the client's own words, never the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from proctor.policies.stream.events import (
    ErrorOccurred,
    ErrorRecovered,
    Event,
    MessageReceived,
    MessageStreamed,
    RunCompleted,
    RunFailed,
    SessionStarted,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
)

from .calls import CallBook
from .names import at_the_gate

_QUIET = """
    background_tasks_changed hook_progress hook_response hook_started status
    task_notification task_progress task_updated
"""
QUIET: Final = frozenset(_QUIET.split())
"""System records that say nothing a policy or a reader needs."""


class ClaudeTranslation:
    """Reads one client's records in order.

    Args:
        calls: the calls of the session, shared with the gate.
        turn_cap: the turns the policy had the client stop at; None when it set no such option.
    """

    def __init__(self, calls: CallBook, *, turn_cap: int | None = None) -> None:
        self.calls = calls
        self.result: dict[str, Any] | None = None
        self._turn_cap = turn_cap
        self._turn = 0
        self._message_id: str | None = None
        self._open_turn = False
        self._state: str | None = None
        self._started = False
        self._retrying: ErrorOccurred | None = None
        self._readers: dict[str, Callable[[dict[str, Any]], Iterator[Event]]] = {
            "assistant": self._assistant,
            "result": self._result,
            "stream_event": self._stream_event,
            "system": self._system,
            "user": self._user,
        }

    @property
    def done(self) -> bool:
        """Whether the client owes nothing more: it gave a result and reports no work in the background."""
        return self.result is not None and self._state in (None, "idle")

    def events(self, record: dict[str, Any]) -> Iterator[Event]:
        """The events of one record; one that makes no sense is kept as it came."""
        reader = self._readers.get(str(record.get("type")), _kept)
        try:
            yield from reader(record)
        except (AttributeError, LookupError, TypeError, ValueError):
            yield _unrecognized(record)

    def ending(self, usage: dict[str, Any]) -> Iterator[Event]:
        """The last events of the run, as the client's result says.

        Args:
            usage: the totals of this run.
        """
        result = self.result or {}
        if result.get("subtype") == "error_max_turns" and self._turn_cap is not None:
            # the model wanted one more response and the policy's cap refused it: the monitor names the limit
            yield TurnStarted(turn=self._turn + 1)
        if result.get("is_error"):
            yield RunFailed(error=_failure(result))
        else:
            output = result.get("structured_output")
            yield RunCompleted(output=result.get("result") if output is None else output, usage=usage)

    def _system(self, record: dict[str, Any]) -> Iterator[Event]:
        subtype = record.get("subtype")
        if subtype == "session_state_changed":
            self._state = str(record.get("state"))
        elif subtype == "init":
            yield from self._init(record)
        elif subtype == "task_started":
            if record.get("task_type") == "local_agent" and record.get("tool_use_id"):
                self.calls.agent_started(str(record["task_id"]), str(record["tool_use_id"]))
        elif subtype == "api_retry":
            message = f"attempt {record.get('attempt')} of {record.get('max_retries')} failed"
            code = str(record.get("error") or "api_retry")
            self._retrying = ErrorOccurred(code=code, message=message, provider_error=record)
            yield self._retrying
        elif subtype == "permission_denied":
            message = f"the client's own permissions refused `{record.get('tool_name')}`"
            yield ErrorOccurred(code="permission_denied", message=message, provider_error=record)
        elif subtype not in QUIET:
            yield _unrecognized(record)

    def _init(self, record: dict[str, Any]) -> Iterator[Event]:
        if self._started:  # the client says so again whenever background work wakes it
            return
        self._started = True
        metadata = {
            "model": record.get("model"),
            "tools": [at_the_gate(name) for name in record.get("tools", ())],
            "client_version": record.get("claude_code_version"),
            "permission_mode": record.get("permissionMode"),
        }
        yield SessionStarted(provider_session_id=str(record["session_id"]), metadata=metadata)

    def _stream_event(self, record: dict[str, Any]) -> Iterator[Event]:
        event = record["event"]
        kind = event["type"]
        if record.get("parent_tool_use_id") is not None:
            return
        if kind == "message_start":
            yield from self._responding(str(event["message"]["id"]))
        elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            block = event["content_block"]
            self.calls.mentioned(str(block["id"]), str(block["name"]), turn=self._turn, parent=None)
        elif kind == "content_block_delta":
            text = str(event["delta"].get("text", ""))
            # anything else is still a sign of life, which keeps an idle clock from running out
            yield MessageStreamed(delta=text) if text else MessageStreamed(role="system")
        elif kind == "message_stop" and self._open_turn:
            self._open_turn = False
            yield TurnCompleted(turn=self._turn)

    def _responding(self, message_id: str) -> Iterator[Event]:
        if message_id == self._message_id:
            return
        self._message_id = message_id
        self._turn += 1
        self._open_turn = True
        if self._retrying is not None:
            yield ErrorRecovered(code=self._retrying.code, message="the next attempt was answered")
            self._retrying = None
        yield TurnStarted(turn=self._turn)

    def _assistant(self, record: dict[str, Any]) -> Iterator[Event]:
        message, parent = record["message"], record.get("parent_tool_use_id")
        if record.get("error"):
            text = "".join(block.get("text", "") for block in message["content"])
            yield ErrorOccurred(code=str(record["error"]), message=text, provider_error=message)
            return
        if parent is None:
            yield from self._responding(str(message["id"]))
        for block in message["content"]:
            yield from self._block(block, parent)

    def _block(self, block: dict[str, Any], parent: str | None) -> Iterator[Event]:
        kind = block.get("type")
        if kind == "text" and parent is None:
            yield MessageReceived(content=block["text"])
        elif kind == "tool_use":
            call = self.calls.mentioned(str(block["id"]), str(block["name"]), turn=self._turn, parent=parent)
            if not call.proposed:
                call.input = dict(block["input"])
        elif kind == "server_tool_use":
            # runs at the API, where no gate is
            call = self.calls.mentioned(str(block["id"]), str(block["name"]), turn=self._turn, parent=parent)
            call.proposed, call.allowed, call.input = True, True, dict(block["input"])
            yield ToolCallStarted(
                tool_call_id=str(block["id"]),
                tool_name=call.name,
                tool_input=call.input,
                turn=call.turn,
                parent_tool_call_id=parent,
            )
        elif str(kind).endswith("_tool_result"):
            yield from self.calls.outcome(block)

    def _user(self, record: dict[str, Any]) -> Iterator[Event]:
        content = record["message"]["content"]
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield from self.calls.outcome(block)

    def _result(self, record: dict[str, Any]) -> Iterator[Event]:
        self.result = record
        yield from ()


def _kept(record: dict[str, Any]) -> Iterator[Event]:
    yield _unrecognized(record)


def _unrecognized(record: dict[str, Any]) -> Unrecognized:
    # its own prefix: a record must not read back as an event of ours
    name = ".".join(str(record[key]) for key in ("type", "subtype") if key in record)
    return Unrecognized(raw={"type": f"claude.{name}", "record": record})


def _failure(result: dict[str, Any]) -> dict[str, Any]:
    reason, subtype = result.get("terminal_reason"), result.get("subtype")
    code = reason or (subtype if subtype != "success" else "") or "provider_error"
    message = "; ".join(str(error) for error in result.get("errors") or ()) or result.get("result") or code
    details = {
        key: result[key]
        for key in ("subtype", "terminal_reason", "api_error_status", "num_turns", "stop_reason", "errors")
        if result.get(key) is not None
    }
    return {"code": str(code), "message": str(message), "details": details}

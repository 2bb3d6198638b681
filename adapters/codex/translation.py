"""What the client reports, as events.

A call the gate allowed is already recorded as started; one that starts without having been asked about
is reported as started here, so that it is judged all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from proctor.policies.events import (
    ErrorOccurred,
    ErrorRecovered,
    Event,
    MessageReceived,
    MessageStreamed,
    ToolCallStarted,
    TurnCompleted,
    TurnStarted,
    Unrecognized,
)

from .items import ASKED, NO_CALLS, RESOURCE_SERVER, Item, outcome, tool_input, tool_name
from .usage import UsageCount, in_messages

_QUIET: Final = (
    "account/", "app/", "configWarning", "deprecationNotice", "externalAgentConfig/", "fuzzyFileSearch/",
    "fs/", "hook/", "item/", "mcpServer/", "project/", "remoteControl/", "serverRequest/", "skills/",
    "thread/", "turn/", "warning", "windows",
)  # fmt: skip
"""Notifications that say nothing about the session beyond what other ones do."""


class Translation:
    """The state it takes to turn one thread's notifications into events.

    Which thread and which turn are ours is taken from the notifications, since the answers that say so too
    reach their readers later than what follows on the wire.

    Args:
        thread_id: the thread that is taken up; "" when one starts with this run or is forked.
        fresh: the thread has no past.
        turn: the number of the session's last model response so far.
    """

    def __init__(self, *, thread_id: str, fresh: bool, turn: int = 0) -> None:
        self.thread_id = thread_id
        self.turn_id = ""
        self.turn_began = False
        self.turn = turn
        self.model: str | None = None
        self.output = ""
        self.running: dict[str, Item] = {}
        self.proposed: set[str] = set()
        self.refused: set[str] = set()
        self.unasked: set[str] = set()
        self._fresh = fresh
        self._in_turn = False
        self._retrying: str | None = None
        self._usage: dict[str, UsageCount] = {}

    def announced(self) -> list[Item]:
        """The calls the client announced and has not asked about yet."""
        return [item for call_id, item in self.running.items() if call_id not in self.proposed]

    def events(self, method: str, params: dict[str, Any]) -> Iterator[Event]:
        """The events of one notification."""
        match method:
            case "thread/started":
                self.thread_id = self.thread_id or str((params.get("thread") or {}).get("id", ""))
            case "turn/started" if params.get("threadId") == self.thread_id:
                self.turn_id = str((params.get("turn") or {}).get("id", ""))
                self.turn_began = True
            case "item/started":
                yield from self._started(params.get("item") or {})
            case "item/completed":
                yield from self._completed(params.get("item") or {})
            case "item/agentMessage/delta":
                yield from self.response_begins()
                yield MessageStreamed(delta=str(params.get("delta", "")))
            case "thread/tokenUsage/updated":
                yield from self._total(params)
            case "model/rerouted":
                self.model = str(params.get("toModel") or self.model)
            case "error":
                yield self._error(params)
            case _:
                if not method.startswith(_QUIET):
                    yield Unrecognized(raw={"type": f"codex/{method}", **params})

    def recorded(self, usage: dict[str, Any]) -> Iterator[Event]:
        """The tokens of the response going on, as the client's own record has them."""
        if usage.get("thread_id") == self.thread_id and usage.get("turn_id") == self.turn_id:
            total = in_messages(usage.get("thread_token_usage") or {})
            last = in_messages(usage.get("usage") or {})
            yield from self._used({"threadId": self.thread_id}, total, last)

    def response_begins(self) -> Iterator[Event]:
        """A sign of the model: the next response has begun, unless one is going on."""
        if self._retrying is not None:
            yield ErrorRecovered(code=self._retrying)
            self._retrying = None
        if not self._in_turn:
            self._in_turn = True
            self.turn += 1
            yield TurnStarted(turn=self.turn)

    def response_ends(self) -> Iterator[Event]:
        """The response going on, if any, is over."""
        if self._in_turn:
            self._in_turn = False
            yield TurnCompleted(turn=self.turn)

    def _started(self, item: Item) -> Iterator[Event]:
        kind = item.get("type")
        if kind == "userMessage" or kind in NO_CALLS - {"agentMessage", "reasoning"}:
            return
        yield from self.response_begins()
        if kind in NO_CALLS:
            return
        call_id = str(item.get("id"))
        self.running[call_id] = item
        runs_already = kind == "commandExecution" and item.get("processId") is not None
        own_tool = kind == "mcpToolCall" and item.get("server") == RESOURCE_SERVER
        if runs_already or own_tool or (kind not in ASKED and kind != "webSearch"):
            yield self._start_unasked(item)

    def _completed(self, item: Item) -> Iterator[Event]:
        kind = item.get("type")
        if kind == "agentMessage":
            self.output = str(item.get("text", ""))
            yield from self.response_begins()
            yield MessageReceived(content=self.output)
        if kind in NO_CALLS:
            return
        call_id = str(item.get("id"))
        self.running.pop(call_id, None)
        if call_id in self.refused:
            return
        if call_id not in self.proposed and item.get("status") == "declined":
            return
        if call_id not in self.proposed and call_id not in self.unasked:
            yield from self.response_begins()
            yield self._start_unasked(item)
        yield outcome(item)

    def _start_unasked(self, item: Item) -> ToolCallStarted:
        call_id = str(item.get("id"))
        self.unasked.add(call_id)
        return ToolCallStarted(
            tool_call_id=call_id, tool_name=tool_name(item), tool_input=tool_input(item), turn=self.turn
        )

    def _total(self, params: dict[str, Any]) -> Iterator[Event]:
        usage = params.get("tokenUsage") or {}
        total, last = usage.get("total") or {}, usage.get("last") or {}
        own = params.get("threadId") == self.thread_id
        if own and params.get("turnId") != self.turn_id:
            self._count(params).past(total)
            return
        yield from self._used(params, total, last)
        if own:
            yield from self.response_ends()

    def _used(self, params: dict[str, Any], total: dict[str, Any], last: dict[str, Any]) -> Iterator[Event]:
        used = self._count(params).update(total, last, self.model)
        if used is not None:
            yield from self.response_begins()
            yield used

    def _count(self, params: dict[str, Any]) -> UsageCount:
        thread = str(params.get("threadId"))
        if thread not in self._usage:
            self._usage[thread] = UsageCount(fresh=self._fresh or thread != self.thread_id)
        return self._usage[thread]

    def _error(self, params: dict[str, Any]) -> ErrorOccurred:
        error = params.get("error") or {}
        code = error_code(error)
        if params.get("willRetry"):
            self._retrying = code
        return ErrorOccurred(code=code, message=str(error.get("message", "")), provider_error=error)


def error_code(error: dict[str, Any]) -> str:
    """The client's name for an error: `unauthorized`, `responseTooManyFailedAttempts`, ..."""
    info = error.get("codexErrorInfo")
    if isinstance(info, dict) and info:
        return str(next(iter(info)))
    return str(info or "error")

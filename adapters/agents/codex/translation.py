"""Translates the client's messages to events.

A call that the gate allowed is already recorded as started; one that starts without a question is reported as started
here, so that it is evaluated too.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall

from ...kit.call_book import CallBook, ClientCall, Turns, check_growth, tokens
from . import items


class Subagent(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a subagent's thread: the call, its turn, and whether the thread began with it."""

    call_id: str
    turn: int
    model: str | None
    new: bool


class Threads:
    """The owner of each thread, as far as the client reports it. `own` is the agent's, "" if it starts with this run
    or is forked; `fresh`: it has no past.
    """

    def __init__(self, own: str, *, fresh: bool) -> None:
        self.own = own
        self._fresh = fresh
        self._agents: dict[str, Subagent] = {}
        self._turn_ids: dict[str, str] = {}
        self._thread_of: dict[str, str] = {}

    def is_own(self, thread_id: str) -> bool:
        """Whether a thread is the agent's, not a subagent's."""
        return thread_id == self.own

    def is_fresh(self, thread_id: str) -> bool:
        """Whether a thread is known to have no past."""
        agent = self._agents.get(thread_id)
        return self._fresh if self.is_own(thread_id) else agent is not None and agent.new

    def turn_begins(self, thread_id: str, turn_id: str) -> None:
        """Note the client's turn id of a thread."""
        self._turn_ids[thread_id] = turn_id

    def turn_id(self, thread_id: str) -> str:
        """The client's turn id of a thread; "" before its turn began."""
        return self._turn_ids.get(thread_id, "")

    def add_call(self, item: items.CodexItem, thread_id: str, turn: int) -> str:
        """Add a call, with the subagents that it mentions (the first call that mentions one has started it); returns
        its id. `turn` is the agent's, for which the thread's calls count.
        """
        call_id = str(item.get("id"))
        self._thread_of[call_id] = thread_id
        for started in items.agent_threads(item):
            new = items.starts_agents(item)
            agent = Subagent(call_id=call_id, turn=turn, model=item.get("model") or None, new=new)
            self._agents.setdefault(started, agent)
        return call_id

    def thread_of(self, call_id: str) -> str:
        """The thread of a known call."""
        return self._thread_of[call_id]

    def agent(self, thread_id: str) -> Subagent | None:
        """The subagent of a thread; None for an unknown thread."""
        return self._agents.get(thread_id)


_FIELDS = {
    "input_tokens": ("inputTokens", "input_tokens"),
    "output_tokens": ("outputTokens", "output_tokens"),
    "cache_read_tokens": ("cachedInputTokens", "cached_input_tokens"),
    "cache_write_tokens": ("cacheWriteInputTokens", "cache_write_input_tokens"),
    "reasoning_tokens": ("reasoningOutputTokens", "reasoning_output_tokens"),
}
"""Each figure's key in the client's messages, and in its record."""


class UsageCount:
    """One thread's usage in this run, computed from its running total.

    The total continues over resumes and forks, so a thread with a past has a baseline: the total that the client
    repeats when it resumes the thread, else the total before the first turn of this run. A `fresh` thread starts with
    this run: its baseline is zero.
    """

    def __init__(self, *, fresh: bool) -> None:
        self._seen: dict[str, int] | None = dict.fromkeys(_FIELDS, 0) if fresh else None
        self._before: dict[str, int] = {}
        self._totals: set[tuple[int, ...]] = set()

    def past(self, total: dict[str, Any]) -> None:
        """Set the thread's total before this run."""
        self._seen = self._before = _read(total)

    def update(self, total: dict[str, Any], last: dict[str, Any], model: str | None) -> ev.TokenUsageUpdated | None:
        """Usage since the last update; `last` is the newest turn's own usage.

        Raises EventError for a value that is not a figure, or lower than before. A total that was counted already, as
        in a message that came late, adds nothing.
        """
        now, newest = _read(total), _read(last)
        if total.get("totalTokens") and not any(now.values()):
            self._seen, self._before = now, {}
            self._totals.clear()
            return None  # the context is full: the client says its size for a total, and counts from zero again
        is_late = self._is_late(now)
        self._totals.add(tuple(now[name] - newest[name] for name in now))
        if is_late:
            return None
        seen = self._seen or {name: now[name] - newest[name] for name in now}
        self._seen = now
        self._totals.add(tuple(now.values()))
        check_growth(seen, now)
        used: dict[str, Any] = {name: now[name] - seen[name] for name in now}
        return ev.TokenUsageUpdated(scope="delta", model=model, **used) if any(used.values()) else None

    def _is_late(self, now: dict[str, int]) -> bool:
        if tuple(now.values()) in self._totals:
            return True
        return any(now.values()) and all(now[name] <= self._before.get(name, -1) for name in now)


def _read(breakdown: dict[str, Any]) -> dict[str, int]:
    return {name: tokens(breakdown, own) or tokens(breakdown, kept) for name, (own, kept) in _FIELDS.items()}


class CodexCall(ClientCall, kw_only=True):
    """One call of a thread: `running` once the client has announced it, until its end. `item` is its description and
    `asked_for` the input that the client asked about, until it is over.
    """

    item: items.CodexItem = {}
    running: bool = False
    asked_for: dict[str, Any] | None = None

    @property
    def runs(self) -> bool:
        """Whether it runs; held and denied calls do not."""
        return self.running and (self.allowed or self.reported)


_QUIET: Final = (
    "account/", "app/", "configWarning", "deprecationNotice", "externalAgentConfig/", "fuzzyFileSearch/",
    "fs/", "hook/", "item/", "mcpServer/", "project/", "remoteControl/", "serverRequest/", "skills/",
    "thread/", "turn/", "warning", "windows",
)  # fmt: skip
"""Notifications that only repeat others."""


class CodexTranslation:
    """Turns a thread's notifications into events.

    The run's thread and turn are taken from notifications, as the answers that name them are read later than the
    messages that follow them. Other threads are subagents': their calls and tokens count, their messages do not.
    `thread_id` and `fresh` are as for `Threads`.
    """

    def __init__(self, *, thread_id: str, fresh: bool) -> None:
        self.threads = Threads(thread_id, fresh=fresh)
        self.turns = Turns()
        self.calls = CallBook(CodexCall)
        self.model: str | None = None
        self.output = ""
        self._retrying: str | None = None
        self._usage: dict[str, UsageCount] = {}

    @property
    def turn_id(self) -> str:
        """The client's turn id of this run; "" before the turn began."""
        return self.threads.turn_id(self.threads.own)

    def announced(self, thread_id: str) -> list[items.CodexItem]:
        """The calls that the client announced in a thread and has not asked about yet."""
        waiting = (call for call in self.calls if call.running and not call.proposed)
        return [call.item for call in waiting if self.threads.thread_of(call.id) == thread_id]

    def turn_and_parent(self, thread_id: str) -> tuple[int, str | None]:
        """The turn that a thread's calls count for, and the call that started the thread."""
        agent = self.threads.agent(thread_id)
        return (self.turns.number, None) if agent is None else (agent.turn, agent.call_id)

    def call_of(self, thread_id: str, call_id: str, name: str, given: dict[str, Any]) -> ToolCall:
        """A call of a thread, in the turn that it counts for."""
        turn, parent = self.turn_and_parent(thread_id)
        return ToolCall(id=call_id, name=name, input=given, turn=turn, parent_tool_call_id=parent)

    def events(self, method: str, params: dict[str, Any]) -> Iterator[ev.Event]:
        """The events of one notification."""
        thread = str(params.get("threadId") or self.threads.own)
        if method.startswith("item/") and not self.is_current(thread, params.get("turnId")):
            return
        match method:
            case "thread/started":
                self.threads.own = self.threads.own or str((params.get("thread") or {}).get("id", ""))
            case "turn/started":
                self.threads.turn_begins(thread, str((params.get("turn") or {}).get("id", "")))
            case "item/started":
                yield from self._started(params.get("item") or {}, thread)
            case "item/completed":
                yield from self._completed(params.get("item") or {}, thread)
            case "item/agentMessage/delta" if self.threads.is_own(thread):
                yield from self.response_begins()
                yield ev.MessageStreamed(delta=str(params.get("delta", "")))
            case "item/agentMessage/delta":
                yield ev.MessageStreamed(role="system")  # a sign of life, which keeps an idle clock from running out
            case "thread/tokenUsage/updated":
                yield from self._total(params, thread)
            case "model/rerouted" if self.threads.is_own(thread):
                self.model = str(params.get("toModel") or self.model)
            case "error":
                yield self._error(params, thread)
            case _:
                if not method.startswith(_QUIET):
                    yield ev.Unrecognized(raw={**params, "type": f"codex/{method}"})

    def is_current(self, thread: str, turn_id: Any) -> bool:
        """Whether a notification is about this run: of the agent's own thread, its other turns are past."""
        if not self.threads.is_own(thread) or turn_id in (None, self.turn_id):
            return True
        return not self.turn_id and self.threads.is_fresh(thread)

    def recorded(self, thread_id: str, usage: dict[str, Any], outputs: Mapping[str, str]) -> Iterator[ev.Event]:
        """The events of a thread's current turn that the client has recorded and not reported: from the newest report
        of its tokens, and the outputs of running calls for the model.
        """
        for call_id, text in outputs.items():
            call = self.calls.get(call_id)
            if call is not None and (ended := items.exited(call.item, text)) is not None:
                yield from self._completed(ended, thread_id)
        if usage.get("thread_id") == thread_id and usage.get("turn_id") == self.threads.turn_id(thread_id):
            yield from self._used(thread_id, usage.get("thread_token_usage") or {}, usage.get("usage") or {})

    def response_begins(self) -> Iterator[ev.Event]:
        """Begin the next turn, unless one is open, as the model produced something."""
        if self._retrying is not None:
            yield ev.ErrorRecovered(code=self._retrying)
            self._retrying = None
        yield from self.turns.begin()

    def _started(self, item: items.CodexItem, thread: str) -> Iterator[ev.Event]:
        kind = item.get("type")
        if self.threads.is_own(thread) and (items.is_call(item) or kind in ("agentMessage", "reasoning")):
            yield from self.response_begins()
        if not items.is_call(item):
            return
        call_id = self.threads.add_call(item, thread, self.turn_and_parent(thread)[0])
        call = self.calls.request(call_id)
        if not call.running:  # an id that comes again is another call's
            self.calls.drop(call_id)
            call = self.calls.begin(call_id, running=True, asked_for=call.asked_for)
        call.item = item
        runs_already = kind == "commandExecution" and item.get("processId") is not None
        own_tool = kind == "mcpToolCall" and item.get("server") == items.RESOURCE_SERVER
        if runs_already or own_tool or (kind not in items.ASKED and kind != "webSearch"):
            yield self._start_unasked(call, item)

    def _completed(self, item: items.CodexItem, thread: str) -> Iterator[ev.Event]:
        if item.get("type") == "agentMessage" and self.threads.is_own(thread):
            self.output = str(item.get("text", ""))
            yield from self.response_begins()
            yield ev.MessageReceived(content=self.output)
        if not items.is_call(item):
            return
        call_id = self.threads.add_call(item, thread, self.turn_and_parent(thread)[0])
        call = self.calls.request(call_id)
        call.running, call.allowed, call.asked_for, call.item = False, False, None, {}
        ran_anyway = call.refused and item.get("status") == "completed"
        if call.over and not ran_anyway:
            return
        call.over, call.refused = True, False
        if not call.proposed and item.get("status") == "declined":
            return
        if ran_anyway or not (call.proposed or call.reported):
            if self.threads.is_own(thread):
                yield from self.response_begins()
            yield self._start_unasked(call, item)
        yield items.outcome(item)

    def _start_unasked(self, call: CodexCall, item: items.CodexItem) -> ev.ToolCallStarted:
        call.turn, call.parent = self.turn_and_parent(self.threads.thread_of(call.id))
        call.name, call.input = items.tool_name(item), items.tool_input(item)
        return call.started()

    def _total(self, params: dict[str, Any], thread: str) -> Iterator[ev.Event]:
        usage = params.get("tokenUsage") or {}
        total, last = usage.get("total") or {}, usage.get("last") or {}
        if self.threads.is_own(thread) and params.get("turnId") != self.turn_id:
            self._count(thread).past(total)
            return
        yield from self._used(thread, total, last)
        if self.threads.is_own(thread):
            yield from self.turns.end()

    def _used(self, thread: str, total: dict[str, Any], last: dict[str, Any]) -> Iterator[ev.Event]:
        agent = self.threads.agent(thread)
        used = self._count(thread).update(total, last, (agent.model if agent else None) or self.model)
        if used is not None:
            if self.threads.is_own(thread):
                yield from self.response_begins()
                yield used
            else:
                yield msgspec.structs.replace(used, subagent_tokens=used.input_tokens + used.output_tokens)

    def _count(self, thread: str) -> UsageCount:
        if thread not in self._usage:
            self._usage[thread] = UsageCount(fresh=self.threads.is_fresh(thread))
        return self._usage[thread]

    def _error(self, params: dict[str, Any], thread: str) -> ev.ErrorOccurred:
        error = params.get("error") or {}
        code = error_code(error)
        if params.get("willRetry") and self.threads.is_own(thread):
            self._retrying = code
        return ev.ErrorOccurred(code=code, message=str(error.get("message", "")), provider_error=error)


def error_code(error: dict[str, Any]) -> str:
    """The client's name for an error: `unauthorized`, `responseTooManyFailedAttempts`, ..."""
    info = error.get("codexErrorInfo")
    if isinstance(info, dict) and info:
        return str(next(iter(info)))
    return str(info or "error")

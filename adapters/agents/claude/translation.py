"""Translates the client's records to events.

The supervisor itself records the prompt and the calls; a `user` record of the client has tool results, a subagent's
prompt or the client's own text, never the user's.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import anyio

from proctor.policies import events as ev
from proctor.policies.values.globs import is_plain, matcher
from proctor.supervisor.errors import ProviderError, ProviderUnavailableError, UnknownSessionError, install_of

from ...kit.call_book import Turns, check_growth, dollars, tokens, unrecognized
from ...kit.client_tools import CLAUDE_TOOLS, tools_matching
from ...kit.process_tree import GUARDS
from ...kit.values import whole_characters
from .session_log import called_tool

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient

    from .hooks import ClaudeCalls


KNOWN: Final = frozenset(tool.name for tool in CLAUDE_TOOLS if tool.name != "Task")
"""Built-in tools of the client, as it calls them at the gate."""
_OLD_NAMES: Final = {"task": "Agent"}
_SPELLABLE = re.compile(r"[A-Za-z0-9_.:-]+")


def at_the_gate(name: str) -> str:
    """A tool's name at the gate, by its name in the client's list: the client lists `Task` and calls `Agent`."""
    return _OLD_NAMES.get(name.casefold(), name)


def resolve(pattern: str, offered: Iterable[str] = ()) -> tuple[str, ...]:
    """The client's exact names for a policy's pattern, portable names included: of its built-in tools, and of those
    `offered` besides. Empty if no known name matches.
    """
    matches = matcher([pattern])
    named = {name for name in KNOWN.union(offered) if matches(name)}
    return tuple(sorted(named.union(at_the_gate(name) for name in tools_matching(CLAUDE_TOOLS, pattern))))


def is_spellable(name: str) -> bool:
    """Whether the client's lists can have a name, as commas and brackets have a meaning there."""
    return is_plain(name) and _SPELLABLE.fullmatch(name) is not None


_QUIET = """
    background_tasks_changed hook_progress hook_response hook_started status
    task_notification task_progress task_updated
"""
QUIET: Final = frozenset(_QUIET.split())
"""System records that no policy or reader needs."""


class ClaudeTranslation:
    """Reads one client's records in order; `turn_cap` is the client's option for the policy's limit of turns."""

    def __init__(self, calls: ClaudeCalls, *, turn_cap: int | None = None) -> None:
        self.calls = calls
        self.result: dict[str, Any] | None = None
        self._turn_cap = turn_cap
        self._turns = Turns()
        self._message_id: str | None = None
        self._state: str | None = None
        self._started = False
        self._retrying: ev.ErrorOccurred | None = None
        self._readers: dict[str, Callable[[dict[str, Any]], Iterator[ev.Event]]] = {
            "assistant": self._assistant,
            "result": self._result,
            "stream_event": self._stream_event,
            "system": self._system,
            "user": self._user,
        }

    @property
    def done(self) -> bool:
        """Whether the client has given its result and reports no work in the background."""
        return self.result is not None and self._state in (None, "idle")

    def events(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        """The events of one record; an invalid one is kept as it came."""
        try:
            yield from self._readers[str(record["type"])](record)
        except (AttributeError, LookupError, TypeError, ValueError):
            yield unrecognized("claude", record, "type", "subtype")

    def ending(self, usage: dict[str, Any]) -> Iterator[ev.Event]:
        """The last events of the run, from the client's result and the totals of this run."""
        result = self.result or {}
        if result.get("subtype") == "error_max_turns" and self._turn_cap is not None:
            # the model wanted one more response and the policy's cap refused it: the monitor names the limit
            yield ev.TurnStarted(turn=self._turns.number + 1)
        if result.get("is_error"):
            yield ev.RunFailed(error=_failure(result))
        else:
            output = result.get("structured_output")
            yield ev.RunCompleted(output=result.get("result") if output is None else output, usage=usage)

    def _system(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        """The events of a record about the client itself."""
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
            self._retrying = ev.ErrorOccurred(code=code, message=message, provider_error=record)
            yield self._retrying
        elif subtype == "permission_denied":
            message = f"the client's own permissions denied `{record.get('tool_name')}`"
            yield ev.ErrorOccurred(code="permission_denied", message=message, provider_error=record)
        elif subtype not in QUIET:
            yield unrecognized("claude", record, "type", "subtype")

    def _init(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        if self._started:  # the client says so again whenever background work wakes it
            return
        self._started = True
        metadata = {
            "model": record.get("model"),
            "tools": [at_the_gate(name) for name in record.get("tools", ())],
            "client_version": record.get("claude_code_version"),
            "permission_mode": record.get("permissionMode"),
        }
        yield ev.SessionStarted(provider_session_id=str(record["session_id"]), metadata=metadata)

    def _stream_event(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        event = record["event"]
        kind = event["type"]
        if record.get("parent_tool_use_id") is not None:
            return
        if kind == "message_start":
            yield from self._responding(str(event["message"]["id"]))
        elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            block = event["content_block"]
            self.calls.mentioned(str(block["id"]), str(block["name"]), turn=self._turns.number, parent=None)
        elif kind == "content_block_delta":
            text = str(event["delta"].get("text", ""))
            # anything else is still a sign of life, which keeps an idle clock from running out
            yield ev.MessageStreamed(delta=text) if text else ev.MessageStreamed(role="system")
        elif kind == "message_stop":
            yield from self._turns.end()

    def _responding(self, message_id: str) -> Iterator[ev.Event]:
        if message_id == self._message_id:
            return
        self._message_id = message_id
        if self._retrying is not None:
            yield ev.ErrorRecovered(code=self._retrying.code, message="the next attempt was answered")
            self._retrying = None
        self._turns.is_open = False  # a response that broke off was not completed
        yield from self._turns.begin()

    def _assistant(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        message, parent = record["message"], record.get("parent_tool_use_id")
        if record.get("error"):
            text = "".join(block.get("text", "") for block in message["content"])
            yield ev.ErrorOccurred(code=str(record["error"]), message=text, provider_error=message)
            return
        if parent is None:
            yield from self._responding(str(message["id"]))
        for block in message["content"]:
            yield from self._block(block, parent)

    def _block(self, block: dict[str, Any], parent: str | None) -> Iterator[ev.Event]:
        kind = block.get("type")
        if kind == "text" and parent is None:
            yield ev.MessageReceived(content=block["text"])
        elif kind == "tool_use":
            call = self.calls.mentioned(str(block["id"]), str(block["name"]), turn=self._turns.number, parent=parent)
            if not call.proposed:
                call.input = dict(block["input"])
        elif str(kind).endswith("_tool_use"):
            # runs at the API, where no gate is
            call = self.calls.mentioned(str(block["id"]), called_tool(block), turn=self._turns.number, parent=parent)
            call.proposed, call.allowed, call.input = True, True, dict(block["input"])
            yield call.started()
        elif str(kind).endswith("_tool_result"):
            yield from self.calls.outcome(block)

    def _user(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        content = record["message"]["content"]
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield from self.calls.outcome(block)

    def _result(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        origin = record.get("origin") or {}
        if self.result is not None or origin.get("kind") != "task-notification":
            self.result = record
        yield from ()  # else the client tells itself, before the prompt, what became of an earlier run's task


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


_NO_SESSION: Final = ("No conversation found", "--resume requires", "Failed to resume session")
"""The client's errors for a session that it does not have, or cannot read."""


def opening_error(error: Exception, stderr: Sequence[str], *, resuming: bool) -> ProviderError:
    """The error to raise for one of the client's start; see `provider_error`."""
    raised = provider_error(error, stderr)
    lines = (str(error), *stderr)
    if resuming and any(words in line for words in _NO_SESSION for line in lines):
        reason = "the Claude Code client does not know the session to resume"
        return UnknownSessionError(reason, details=raised.details)
    return raised


def provider_error(error: Exception, stderr: Sequence[str] = ()) -> ProviderError:
    """The error to raise for one of the SDK, or of reading a record; `stderr` are the last lines the client wrote."""
    from claude_agent_sdk import CLINotFoundError, ProcessError

    if isinstance(error, ProviderError):
        return error
    if isinstance(error, CLINotFoundError):
        return ProviderUnavailableError(f"no Claude Code client: {error}; {install_of('claude')} brings one along")
    details: dict[str, Any] = {"error": str(error), "code": type(error).__name__, "stderr": list(stderr)}
    if isinstance(error, ProcessError):
        details["exit_code"] = error.exit_code
    if "Control request timeout" in str(error):
        return ProviderError("the Claude Code client did not answer", details=details)
    return ProviderError(f"the Claude Code client failed: {_first_line(error)}", details=details)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:300]


ANSWER_S = 30.0
"""Seconds the client may take to answer, for which it usually needs milliseconds."""


class Wire:
    """A connected client's raw records and control requests. Raises ProviderUnavailableError if hidden."""

    def __init__(self, client: ClaudeSDKClient) -> None:
        self._query: Any = getattr(client, "_query", None)
        transport: Any = getattr(client, "_transport", None)
        process: Any = getattr(transport, "_process", None)
        needed = ("receive_messages", "_send_control_request")
        if process is None or not all(hasattr(self._query, name) for name in needed):
            from claude_agent_sdk import __version__

            raise ProviderUnavailableError(
                f"claude-agent-sdk {__version__} cannot be supervised; {install_of('claude')} brings "
                "a version that can"
            )
        self._process = process
        self.output_ended = _output_ended(process)
        _drop_late_writes(transport, process)
        if GUARDS:
            process.kill = lambda: None  # a guardian ends what is below it, and then itself

    @property
    def returncode(self) -> int | None:
        """The exit code of the client's process, or of its guardian; None while it runs."""
        code: int | None = self._process.returncode
        return code

    async def records(self) -> AsyncGenerator[dict[str, Any]]:
        """Every record of the session, in order; close it when done."""
        async with aclosing(self._query.receive_messages()) as records:
            async for record in records:
                written = json.dumps(record).encode()
                whole = whole_characters(written)
                yield record if whole == written else json.loads(whole)

    async def model_usage(self) -> dict[str, Any]:
        """The session's totals per model, subagents and earlier runs included.

        Raises ProviderError if the client does not answer within `ANSWER_S`, or with something else.
        """
        with anyio.move_on_after(ANSWER_S) as limited:
            answer = await self._query._send_control_request({"subtype": "get_usage"})
        if limited.cancelled_caught:
            raise ProviderError(f"the Claude Code client did not say within {ANSWER_S:g} seconds what it used")
        try:
            usage: dict[str, Any] = answer["session"]["model_usage"]
        except (LookupError, TypeError):
            raise ProviderError("the Claude Code client does not say what it used") from None
        return usage


def _drop_late_writes(transport: Any, process: Any) -> None:
    from claude_agent_sdk import CLIConnectionError

    write = transport.write

    async def written(data: str) -> None:
        try:
            await write(data)
        except CLIConnectionError:
            if process.returncode is None:
                raise

    transport.write = written


def _output_ended(process: Any) -> anyio.Event:
    """An event that is set when the SDK begins to wait for the process, at the end of the client's output."""
    ended, wait = anyio.Event(), process.wait

    async def wait_and_note() -> Any:
        ended.set()
        return await wait()

    process.wait = wait_and_note
    return ended


_FIELDS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_tokens",
    "cacheCreationInputTokens": "cache_write_tokens",
    "thinkingTokens": "reasoning_tokens",
    "costUSD": "cost_usd",
}
_COST = "cost_usd"


class SessionMeter:
    """Turns totals per model into the usage since the last report."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, float]] = {}
        self._run: dict[str, float] = dict.fromkeys(_FIELDS.values(), 0)

    def begin(self, model_usage: Mapping[str, Any]) -> None:
        """Set the totals at the start of the run."""
        for model, totals in model_usage.items():
            self._seen[model] = dict.fromkeys(_FIELDS.values(), 0) | _numbers(totals)

    def usage_of(self, model_usage: Mapping[str, Any]) -> Iterator[ev.TokenUsageUpdated]:
        """The usage since the last report, one event a model.

        Raises EventError for a value that is not a figure, or lower than before.
        """
        for model, totals in model_usage.items():
            before = self._seen.setdefault(model, dict.fromkeys(_FIELDS.values(), 0))
            now = before | _numbers(totals)
            check_growth(before, now)
            added = {name: value - before[name] for name, value in now.items()}
            self._seen[model] = now
            if any(added.values()):
                for name, value in added.items():
                    self._run[name] += value
                yield _event(model, added)

    def run_totals(self) -> dict[str, float]:
        """This run's usage so far, all models together, in the fields of usage events."""
        cached = self._run["cache_read_tokens"] + self._run["cache_write_tokens"]
        return {**self._run, "input_tokens": self._run["input_tokens"] + cached}


def _numbers(totals: Mapping[str, Any]) -> dict[str, float]:
    numbers: dict[str, float] = {ours: tokens(totals, theirs) for theirs, ours in _FIELDS.items() if ours != _COST}
    if totals.get("costBasis") != "unknown":  # the client guesses for models it has no price of
        numbers[_COST] = dollars(totals, "costUSD")
    return numbers


def _event(model: str, added: Mapping[str, float]) -> ev.TokenUsageUpdated:
    read, written = int(added["cache_read_tokens"]), int(added["cache_write_tokens"])
    return ev.TokenUsageUpdated(
        scope="delta",
        model=model,
        input_tokens=int(added["input_tokens"]) + read + written,
        output_tokens=int(added["output_tokens"]),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=int(added["reasoning_tokens"]),
        cost_usd=added["cost_usd"] or None,
    )

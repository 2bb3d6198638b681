"""Translates the client's records to events.

The records have the shape of Claude Code's. The delegate does not name a call's record, so that calls are matched by
tool and input.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from proctor.policies import events as ev
from proctor.policies.errors import EventError
from proctor.policies.values.globs import matcher

from ...kit.call_book import CallBook, ClientCall, Turns, tokens, unrecognized
from ...kit.client_tools import plain_output

SHELL: Final = "Bash"
"""The shell tool's name here; its input always has `command`."""
_SHELLS: Final = frozenset(("bash", "shell_command"))


def our_name(name: str) -> str:
    """A tool's name as policies have it."""
    return SHELL if name.casefold() in _SHELLS else name


def our_input(name: str, tool_input: Any) -> dict[str, Any]:
    """A tool's input as policies have it."""
    given = dict(tool_input) if isinstance(tool_input, Mapping) else {"input": tool_input}
    if our_name(name) == SHELL and "command" not in given and "cmd" in given:
        given["command"] = given.pop("cmd")
    return given


def their_names(pattern: str) -> tuple[str, ...]:
    """The client's names for a name or pattern of a policy."""
    if pattern.casefold() in _SHELLS:
        return (SHELL, "shell_command")
    return (pattern,)


_TOKENS = {
    "input_tokens": ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "output_tokens": ("output_tokens",),
    "cache_read_tokens": ("cache_read_input_tokens",),
    "cache_write_tokens": ("cache_creation_input_tokens",),
}


class AmpCall(ClientCall, kw_only=True):
    """One call; `shown` once it was in a record of the client, `denial` the text for the model."""

    shown: bool = False
    denial: str = ""


class AmpTranslation:
    """Reads one client's records in order; the client denies the tools in `rejected` by itself."""

    def __init__(self, rejected: Iterable[str]) -> None:
        self.done = False
        self.turns = Turns()
        self.calls = CallBook(AmpCall)
        self._rejects = matcher(list(rejected))
        self._ids: dict[str, str] = {}
        self._message_id: str | None = None
        self._used: dict[str, dict[str, int]] = {}
        self._readers: dict[str, Callable[[dict[str, Any]], Iterator[ev.Event]]] = {
            "system": self._system,
            "assistant": self._assistant,
            "user": self._user,
            "result": self._result,
        }

    def events(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        """The events of one record; an invalid one is kept as it came.

        Raises EventError for impossible usage.
        """
        reader = self._readers.get(str(record.get("type")), _unrecognized)
        try:
            yield from reader(record)
        except EventError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError):
            yield from _unrecognized(record)

    def proposed(self, tool: str, tool_input: Any) -> AmpCall:
        """The call that the delegate asks about, which a record of the client has, or will have."""
        name, given = our_name(tool), our_input(tool, tool_input)
        call = self._find(name, given, shown=True, proposed=False)
        if call is None:
            call = self.calls.begin(f"asked-{len(self.calls) + 1}", name=name, turn=self.turns.number)
        call.proposed, call.input = True, given
        return call

    def _system(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        if record.get("subtype") != "init":
            yield from _unrecognized(record)
            return
        metadata = {"tools": [our_name(str(tool)) for tool in record.get("tools", ())], "cwd": record.get("cwd")}
        yield ev.SessionStarted(provider_session_id=str(record["session_id"]), metadata=metadata)

    def _assistant(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        """The events of a message of the model: its turn, its texts, its calls and what they used."""
        message, parent = record["message"], record.get("parent_tool_use_id")
        message_id = str(message.get("id") or "")
        if parent is None and (message_id != self._message_id or not self.turns.is_open):
            again = self._message_id is None and self.turns.is_open  # begun by a call that was asked about before
            self._message_id = message_id
            if not again:
                yield from self.turns.end()
                yield from self.turns.begin()
        for block in message["content"]:
            if block["type"] == "text" and parent is None:
                yield ev.MessageReceived(content=block["text"])
            elif str(block["type"]).endswith("tool_use"):
                self._show(block, parent)
            elif str(block["type"]).endswith("tool_result"):
                yield from self._outcome(block)
        yield from self._usage(message_id, message.get("usage"), message.get("model"))

    def _user(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        content = record["message"]["content"]
        for block in content if isinstance(content, list) else ():
            if str(block.get("type")).endswith("tool_result"):
                yield from self._outcome(block)

    def _result(self, record: dict[str, Any]) -> Iterator[ev.Event]:
        total = _tokens(record.get("usage") or {})
        reported = {name: sum(used[name] for used in self._used.values()) for name in _TOKENS}
        yield from _added({name: total[name] - reported[name] for name in _TOKENS}, None)
        yield from self.turns.end()
        self.done = True
        if record.get("is_error"):
            code = str(record.get("subtype") or "error")
            yield ev.RunFailed(error={"code": code, "message": str(record.get("error") or code)})
        else:
            yield ev.RunCompleted(output=record.get("result"))

    def _show(self, block: Mapping[str, Any], parent: str | None) -> None:
        name, given = our_name(str(block["name"])), our_input(str(block["name"]), block["input"])
        call = self._find(name, given, shown=False, proposed=True)
        if call is None:
            above = self.calls.get(self._ids.get(parent or "", ""))
            turn, parent = (above.turn, above.id) if above is not None else (self.turns.number, parent)
            call = self.calls.begin(str(block["id"]), name=name, input=given, turn=turn, parent=parent)
        call.shown = True
        self._ids[str(block["id"])] = call.id

    def _find(self, name: str, given: dict[str, Any], *, shown: bool, proposed: bool) -> AmpCall | None:
        for call in self.calls:
            if (call.name, call.input, call.shown, call.proposed) == (name, given, shown, proposed) and not call.over:
                return call
        return None

    def _outcome(self, block: dict[str, Any]) -> Iterator[ev.Event]:
        call = self.calls.get(self._ids[str(block["tool_use_id"])])
        if call is None or call.over:
            return
        call.over = True
        content, failed = plain_output(block.get("content")), bool(block.get("is_error"))
        if call.refused:
            if failed or call.denial in str(content):
                return
            yield call.started()  # it ran all the same
        if not call.proposed:
            yield from self._ungated(call, content)
        if call.proposed or not self._rejects(call.name) or not failed:
            yield call.ended(content, failed=failed)

    def _ungated(self, call: AmpCall, content: Any) -> Iterator[ev.Event]:
        """The events of a call without a question: the client denied it by a rule of ours, or ran it."""
        if not self._rejects(call.name):
            yield call.started()
            return
        yield call.requested()
        text = content if isinstance(content, str) else None
        yield ev.ToolCallDenied(tool_call_id=call.id, tool_name=call.name, tell_model=text)

    def _usage(self, message_id: str, usage: Any, model: Any) -> Iterator[ev.Event]:
        """A message's usage, which is repeated with each part of the message."""
        if usage is not None:
            now = _tokens(usage)
            before = self._used.get(message_id, dict.fromkeys(_TOKENS, 0))
            self._used[message_id] = {name: max(now[name], before[name]) for name in _TOKENS}
            yield from _added({name: now[name] - before[name] for name in _TOKENS}, model)


def _tokens(usage: Mapping[str, Any]) -> dict[str, int]:
    return {ours: sum(tokens(usage, name) for name in theirs) for ours, theirs in _TOKENS.items()}


def _added(more: Mapping[str, int], model: Any) -> Iterator[ev.Event]:
    counts: dict[str, Any] = {name: max(0, value) for name, value in more.items()}
    if any(counts.values()):
        yield ev.TokenUsageUpdated(model=model if isinstance(model, str) else None, **counts)


def _unrecognized(record: dict[str, Any]) -> Iterator[ev.Event]:
    yield unrecognized("amp", record, "type", "subtype")

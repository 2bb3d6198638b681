"""Translates an agent's messages to events.

The protocol does not say where a turn begins. A turn is taken to begin with the prompt, and with the first text that
follows a call's outcome, so that there may have been more turns than are counted.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.events import Event, MessageReceived, MessageStreamed, TokenUsageUpdated

from ...kit.call_book import CallBook, ClientCall, Turns, check_growth, dollars, tokens, unrecognized
from ...kit.client_tools import certain_changes_of, mcp_tool_name

KINDS: Final = frozenset(("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode"))
CALLED_SEARCHES: Final = ("context7_get_library_docs", "context7_resolve_library_id")
"""Tools of an MCP server whose kind opencode gives as that of its own searches."""
OTHER: Final = "other"
FINISHED: Final = frozenset(("completed", "failed"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_GEMINI_SERVER = re.compile(r"(?P<tool>[\w.:-]+) \((?P<server>[\w.:-]+) MCP Server\)", re.ASCII)
_KEPT: Final = ("title", "kind", "content", "locations", "rawInput", "_meta")
_PATCH: Final = ("patchText", "filepath", "diff", "files")
"""A patch as text, and the fields in which opencode's question repeats it; `filepath` has all paths in one text."""


class AcpCall(ClientCall, kw_only=True):
    """One call of the agent, as far as the agent has described it.

    `fields` merges the agent's descriptions. `proposals` are the calls proposed to the gate for it, by id, and
    `allowed_ids` those the gate allowed, as an agent may ask twice about one call, with different inputs. `watched`
    once it was reported as in progress.
    """

    fields: dict[str, Any] = {}
    first_title: str = ""
    watched: bool = False
    proposals: dict[str, tuple[str, dict[str, Any]]] = {}
    allowed_ids: list[str] = []

    def describe(self, fields: Mapping[str, Any]) -> None:
        """Update the agent's description of the call; absent or null fields have not changed."""
        self.fields.update(given(fields))
        self.first_title = self.first_title or str(fields.get("title") or "")
        self.parent = self.parent or parent_of(fields)
        self.name, self.input = tool_name(self.fields, self.first_title), tool_input(self.fields)

    def outcomes(self, output: Any, *, failed: bool) -> Iterator[Event]:
        """The events of its outcome, one for each id under which it was started."""
        for call_id in self.allowed_ids:
            proposed = msgspec.structs.replace(self, id=call_id, name=self.proposals[call_id][0])
            yield proposed.ended(output, failed=failed)
        if self.reported:
            yield self.ended(output, failed=failed)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a call that an update or a question gives."""
    return {key: fields[key] for key in _KEPT if fields.get(key) not in (None, {}, [])}


def parent_of(fields: Mapping[str, Any]) -> str | None:
    """The call that started the subagent of an update; None for the agent's own updates, or if unknown."""
    return _in_meta(fields.get("_meta"), "parentToolUseId")


def tool_name(fields: Mapping[str, Any], first_title: str = "") -> str:
    """The name of the tool that a call is of."""
    own = _in_meta(fields.get("_meta"), "toolName")
    if own is not None:
        return own
    kind = fields.get("kind")
    title = first_title or str(fields.get("title") or "")
    if isinstance(kind, str) and kind in KINDS:
        return title if kind == "search" and title.casefold() in CALLED_SEARCHES else kind
    if of_server := _GEMINI_SERVER.fullmatch(title):
        return mcp_tool_name(of_server["server"], of_server["tool"])
    return title if _NAME.fullmatch(title) else OTHER


def tool_input(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The input as the agent gives it, else its readable parts: `title`, `locations`, `diffs`.

    A patch given as text (`patchText`) is read as its `changes`, if it can be read in one way only.
    """
    raw = fields.get("rawInput")
    if isinstance(raw, dict) and raw:
        patch = raw.get("patchText")
        changes = certain_changes_of(patch) if isinstance(patch, str) and "changes" not in raw else []
        others = {name: value for name, value in raw.items() if name not in _PATCH}
        return {**others, "changes": changes} if changes else raw
    read: dict[str, Any] = {"title": str(fields.get("title") or "")}
    if raw not in (None, {}, ""):
        read["raw"] = raw
    if paths := [place["path"] for place in _dicts(fields.get("locations")) if "path" in place]:
        read["locations"] = paths
    if diffs := [_diff(block) for block in _dicts(fields.get("content")) if block.get("type") == "diff"]:
        read["diffs"] = diffs
    return read


def output_of(fields: Mapping[str, Any]) -> Any:
    """The output of a finished call: its text, or else its raw output, or its content as it came."""
    texts = [_text(block) for block in _dicts(fields.get("content"))]
    if texts and all(text is not None for text in texts):
        return "".join(text for text in texts if text)
    return fields.get("rawOutput", fields.get("content") or None)


def exits_with_error(fields: Mapping[str, Any]) -> bool:
    """Whether a command has failed by its exit code, where the agent names one: its status may say that it ran."""
    places = _dicts([raw := fields.get("rawOutput"), raw.get("metadata") if isinstance(raw, dict) else None])
    codes = [place.get(name) for place in places for name in ("exit", "exit_code", "exitCode")]
    return any(isinstance(code, int) and code != 0 for code in codes)


def shows_output(fields: Mapping[str, Any]) -> bool:
    """Whether an update shows that the call is running, as it has output already."""
    if fields.get("rawOutput") is not None:
        return True
    return any(block.get("type") == "terminal" or _text(block) for block in _dicts(fields.get("content")))


def _in_meta(meta: Any, key: str) -> str | None:
    """The value an agent gives under its own name, or under none."""
    if not isinstance(meta, dict):
        return None
    for place in (meta, *meta.values()):
        value = place.get(key) if isinstance(place, dict) else None
        if isinstance(value, str) and value:
            return value
    return None


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(block: Mapping[str, Any]) -> str | None:
    content = block.get("content")
    if block.get("type") != "content" or not isinstance(content, dict) or content.get("type") != "text":
        return None
    return str(content.get("text") or "")


def _diff(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"path": block.get("path"), "old_text": block.get("oldText"), "new_text": block.get("newText")}


def prompt_usage(answer: Mapping[str, Any], model: str | None) -> Iterator[TokenUsageUpdated]:
    """The tokens of one prompt, from the agent's answer to it; nothing if it has none.

    Raises EventError for a value that is not a figure.
    """
    usage = answer.get("usage")
    if usage:
        yield _of_usage(usage, model)
        return
    meta = answer.get("_meta")
    quota = meta.get("quota") if isinstance(meta, dict) else None
    if not isinstance(quota, dict):
        return
    listed = quota.get("model_usage")
    models = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    for entry in models or [{"token_count": quota.get("token_count"), "model": model}]:
        counts = entry.get("token_count")
        if counts:
            yield TokenUsageUpdated(
                input_tokens=tokens(counts, "input_tokens"),
                output_tokens=tokens(counts, "output_tokens"),
                cache_read_tokens=tokens(counts, "cached_input_tokens"),
                reasoning_tokens=tokens(counts, "reasoning_output_tokens"),
                model=str(entry["model"]) if entry.get("model") else model,
            )


class CostMeter:
    """Turns a session's running cost into this run's cost. If the cost `before` this run is unknown, the first report
    stands for it.
    """

    def __init__(self, before: float | None) -> None:
        self.seen = before

    def usage_of(self, update: Mapping[str, Any]) -> TokenUsageUpdated | None:
        """The cost added since the last report, in USD; other currencies are not counted.

        Raises EventError for a value that is not an amount, or lower than before.
        """
        cost = update.get("cost")
        if not cost or (isinstance(cost, dict) and (cost.get("currency") != "USD" or cost.get("amount") is None)):
            return None
        before, self.seen = self.seen, dollars(cost, "amount")
        check_growth({"cost": before or 0.0}, {"cost": self.seen})
        added = 0.0 if before is None else self.seen - before
        return TokenUsageUpdated(cost_usd=added) if added > 0 else None


def _of_usage(usage: Mapping[str, Any], model: str | None) -> TokenUsageUpdated:
    read, written = tokens(usage, "cachedReadTokens"), tokens(usage, "cachedWriteTokens")
    given, answered = tokens(usage, "inputTokens"), tokens(usage, "outputTokens")
    thought, total = tokens(usage, "thoughtTokens"), tokens(usage, "totalTokens")
    # agents differ in whether cached tokens and thoughts are among the others: their total tells
    cached_apart = total >= given + read + written + answered
    thought_apart = total >= given + answered + thought + (read + written if cached_apart else 0)
    return TokenUsageUpdated(
        input_tokens=given + read + written if cached_apart else given,
        output_tokens=answered + thought if thought_apart else answered,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        model=model,
    )


_QUIET: Final = frozenset(
    (
        "available_commands_update", "config_option_update", "current_mode_update", "session_info_update",
        "user_message_chunk",
    )
)  # fmt: skip
"""Updates that concern nothing that the agent does."""


class AcpTranslation:
    """Turns a session's updates into events.

    A call that the gate allowed is already recorded as started; one that runs without a question is reported as
    started here, so that it is evaluated too. While the prompt is being cancelled (`interrupted`), outcomes are
    unreliable: agents report interrupted calls as completed.
    """

    def __init__(self, cost: CostMeter) -> None:
        self.cost = cost
        self.calls = CallBook(AcpCall)
        self.turns = Turns()
        self.output = ""
        self.interrupted = False
        self._text = ""
        self._outcomes = False

    def events(self, update: Mapping[str, Any]) -> Iterator[Event]:
        """The events of one update; an invalid one is kept as it came.

        Raises EventError for an impossible cost.
        """
        try:
            yield from self._read(update)
        except EventError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError):
            yield unrecognized("acp", update, "sessionUpdate")

    def _read(self, update: Mapping[str, Any]) -> Iterator[Event]:
        kind = update.get("sessionUpdate")
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk" if parent_of(update) is not None:
                yield MessageStreamed(role="system")  # a subagent's words are no response of its parent's
            case "agent_message_chunk":
                yield from self._words(update.get("content"))
            case "agent_thought_chunk":
                yield from self._mark_active()
                yield MessageStreamed(role="system")  # not text, but a sign of life
            case "tool_call" | "tool_call_update":
                yield from self._call(update)
            case "usage_update":
                if (used := self.cost.usage_of(update)) is not None:
                    yield used
            case _ if kind not in _QUIET:
                yield unrecognized("acp", update, "sessionUpdate")

    def past(self, update: Mapping[str, Any]) -> None:
        """Handle an update about the time before this run."""
        if update.get("sessionUpdate") == "usage_update":
            self.cost.usage_of(update)

    def call_of(self, fields: Mapping[str, Any], *, begins: bool = False) -> AcpCall:
        """The call of an update or a question; the first one describes it. If this one may begin a call (`begins`),
        an id whose call is over is another call's.
        """
        call_id = str(fields.get("toolCallId") or "")
        call = self.calls.get(call_id)
        if call is None or (begins and call.over):
            call = self.calls.begin(call_id)
            call.describe(fields)
        return call

    def _mark_active(self) -> Iterator[Event]:
        """Note that the model produced something; after an outcome, that begins a new turn."""
        if self._outcomes:
            yield from self.response_ends()
        yield from self.turns.begin()

    def response_ends(self) -> Iterator[Event]:
        """End the current turn, if there is one."""
        yield from self.message()
        self._outcomes = False
        yield from self.turns.end()

    def message(self) -> Iterator[Event]:
        """The text since the last message, as one message."""
        if self._text:
            self.output, self._text = self._text, ""
            yield MessageReceived(content=self.output)

    def ungated(self, call: AcpCall) -> Iterator[Event]:
        """The events of a call that runs without having been proposed to the gate."""
        if not call.proposals and not call.reported:
            call.turn = self.turns.number
            yield call.started()

    def given_up(self) -> Iterator[Event]:
        """The events of running calls whose outcome will not be reported."""
        for call in self.calls:
            if not call.over:
                call.over = True
                yield from call.outcomes({"message": "ended with the run"}, failed=True)

    def _words(self, content: Any) -> Iterator[Event]:
        yield from self._mark_active()
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
        call.describe(update)
        if call is not before:
            yield from self.turns.begin()
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
        ran_anyway = call.refused and not call.allowed_ids and update.get("status") == "completed"
        if call.refused and not ran_anyway:
            yield from call.outcomes({"message": "refused later"}, failed=True)
            return
        if ran_anyway and not call.reported:
            yield call.started()
        yield from self.ungated(call)
        output = output_of(update)
        if self.interrupted:
            yield from call.outcomes({"message": "ended with the run", "output": output}, failed=True)
        else:
            yield from call.outcomes(output, failed=update.get("status") == "failed" or exits_with_error(update))

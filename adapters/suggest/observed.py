"""Recorded sessions as a policy would see them: calls by the names rules use, each input value with its source."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from proctor.policies import events as ev
from proctor.policies.events.run_context import PORTABLE, Tool
from proctor.policies.language.facts import ToolTable
from proctor.policies.language.selectors import selector_problems
from proctor.policies.rules.memory import UserText
from proctor.policies.values.globs import is_plain
from proctor.policies.values.json_values import parsed_output, scalars_in, text_of
from proctor.policies.values.model_base import also_of, has_unclear
from proctor.policies.values.paths import compile_path, path_to

from ..kit.client_tools import recorded_tools

if TYPE_CHECKING:
    from ..traces import TraceSession

Supplier: TypeAlias = tuple[str, str]
"""A tool, and the path in its output."""
HOST = r"(?is)\A(?:https?://)?((?:[^/?#\s:@\\\[\]]+|\[[0-9a-f:.]+\])(?::[0-9]+)?)(?:[/?#].*)?$|\A(.+)"
"""Finds the host of an address, with its port; the whole text of any that programs read in different ways."""
LINK = r"(?i)(?:https?://|\bwww\.)[^\s<>()\[\]\"'`]*[^\s<>()\[\]\"'`.,;:!?]"
"""Finds links in a text."""
_ADDRESS = re.compile(r"(?:https?://)?[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:[/?#]\S*)?", re.ASCII)
_HOST = re.compile(HOST)
_LINK = re.compile(LINK)
_SHORTEST = 3
"""A text with fewer characters may be in an output by chance."""
_SUPPLIED = 20_000
"""So many values of a session's outputs are looked at."""
_PROSE = ("content", "prompt", "pattern", "query")
"""Portable inputs that are free text."""


class ObservedCall(NamedTuple):
    """One call that ran.

    `tool` is the portable name where the agent's tool has just one, else the tool's own. `inputs` are the scalars of
    each input by path. `roles` are the portable inputs among them, those of a tool with several acts for each act
    apart: `acts` has those paths, each with the act and where a call has anything that does it. No condition on the
    paths of `unclear` admits it. `user` is what users wrote before it. `supplied` has, for a text of its input, who
    returned it before.
    """

    tool: str
    name: str
    input: dict[str, Any]
    inputs: dict[str, tuple[Any, ...]]
    roles: dict[str, str]
    user: UserText
    supplied: dict[str, frozenset[Supplier]]
    turn: int
    failed: bool
    output: Any
    acts: dict[str, tuple[str, str]] = {}
    unclear: frozenset[str] = frozenset()


class ObservedSession(msgspec.Struct, frozen=True):
    """One session: its calls in order, those that completed by then, and what it used; `tools` are its agent's."""

    id: str
    calls: tuple[ObservedCall, ...]
    messages: dict[int, str]
    used: dict[str, float]
    workspace: str | None = None
    tools: tuple[Tool, ...] = ()


def observe(session: TraceSession) -> ObservedSession:
    """The calls of a session that ran, and what it used."""
    return _Reader(session).read()


def host_of(text: str) -> str:
    """The host of an address, as `HOST` finds it."""
    found = _HOST.match(text)
    return (found[1] or found[2]) if found else text


def is_address(value: Any) -> bool:
    """Whether a value is the address of a page: with a scheme, or a name with a dot and no file's."""
    return isinstance(value, str) and ("://" in value or value.startswith("www.")) and bool(_ADDRESS.fullmatch(value))


def links_in(text: str) -> list[str]:
    """The links in a text, as `LINK` finds them."""
    return _LINK.findall(text)


class _Reader:
    def __init__(self, session: TraceSession) -> None:
        self._session = session
        self._tools = recorded_tools(session.events, session.format)
        self._table = ToolTable(self._tools)
        self._user = UserText()
        self._written: list[str] = []
        self._messages: dict[int, str] = {}
        self._supplied: defaultdict[str, set[Supplier]] = defaultdict(set)
        self._used: dict[str, float] = {}
        self._calls: dict[str, ObservedCall] = {}
        self._done: list[ObservedCall] = []

    def read(self) -> ObservedSession:
        for event in self._session.events:
            self._observe(event)
        calls = (*self._done, *self._calls.values())
        self._used["max_tool_calls"] = len(calls)
        workspace = self._session.metadata.get("workspace")
        return ObservedSession(self._session.id, calls, self._messages, self._used, workspace, self._tools)

    def _observe(self, event: Any) -> None:
        match event:
            case ev.MessageSent(role="user", content=content) if isinstance(content, str):
                self._wrote(content)
            case ev.RunStarted():  # a call is known by its id within its run
                self._done += self._calls.values()
                self._calls.clear()
            case ev.TurnStarted():
                self._use("max_turns", 1)
            case ev.TokenUsageUpdated(scope="delta"):
                self._use("max_total_tokens", event.input_tokens + event.output_tokens)
                self._use("max_cost_usd", event.cost_usd or 0)
            case ev.ToolCallStarted() if _is_name(event.tool_name):
                self._calls[event.tool_call_id] = self._call(event)
            case ev.ToolCallCompleted() | ev.ToolCallFailed() if event.tool_call_id in self._calls:
                self._end(event)

    def _wrote(self, content: str) -> None:
        at = len(self._done) + len(self._calls)
        self._messages[at] = "\n".join(filter(None, (self._messages.get(at), content)))
        self._written.append(content)
        self._user = UserText()
        for text in self._written:
            self._user.add(text, {}, keep=True)

    def _use(self, limit: str, amount: float) -> None:
        self._used[limit] = self._used.get(limit, 0) + amount

    def _call(self, event: ev.ToolCallStarted) -> ObservedCall:
        tool, input, roles = self._portable(event.tool_name, event.tool_input)
        inputs = dict(_scalars(input))
        described = self._table.tools.get(event.tool_name.casefold())
        acts = dict(_acts(described)) if described is not None and not described.inferred else {}
        if acts:
            several = ((path, tuple(scalars_in(list(compile_path(path, True)(event.tool_input))))) for path in acts)
            inputs = {path: values for path, values in several if values}
            roles = dict.fromkeys(inputs, "path")
        also = also_of(self._table.input(event.tool_name, event.tool_input))
        unclear = {path_to(name) for name, values in also.items() if has_unclear(values)}
        unclear.update(path for key in input if inputs.keys().isdisjoint((path := path_to(key), f"{path}[*]")))
        return ObservedCall(
            tool=tool,
            name=event.tool_name,
            input=event.tool_input,
            inputs=inputs,
            roles={path: role for path, role in roles.items() if path in inputs},
            user=self._user,
            supplied=self._suppliers(inputs),
            turn=event.turn,
            failed=False,
            output=None,
            acts=acts,
            unclear=frozenset(unclear),
        )

    def _portable(self, name: str, input: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, str]]:
        """The name, the input and its portable parts, by portable names where the tool does just one act."""
        described = self._table.tools.get(name.casefold())
        names = self._table.names(self._table.kind(name, input))
        own_act = name.casefold()
        acts = names.acts or ((own_act,) if own_act in PORTABLE else ())
        if described is None or names.in_part or len(acts) != 1 or len(described.every_act) > 1:
            return name, input, {}
        (act,) = acts
        found = self._table.input(name, input)
        also = getattr(found, "also", {})
        if described.inferred:
            places = {path: role for role, paths in described.inputs.items() for path in paths}
            return name, input, {path: role for path, role in places.items() if role not in _PROSE}
        parts = {key: [*([input[key]] if key in input else []), *also.get(key, ())] for key in PORTABLE[act]}
        own = {key: values for key, values in parts.items() if values and key not in _PROSE}
        return act, own, {path: key for key in own for path in (f"$.{key}", f"$.{key}[*]")}

    def _suppliers(self, inputs: dict[str, tuple[Any, ...]]) -> dict[str, frozenset[Supplier]]:
        texts = {text_of(value) for values in inputs.values() for value in values}
        texts |= {host_of(text) for text in texts}
        return {text: frozenset(self._supplied[text]) for text in texts if text in self._supplied}

    def _end(self, event: Any) -> None:
        call = self._calls.pop(event.tool_call_id)
        failed = isinstance(event, ev.ToolCallFailed)
        output = None if failed else event.tool_output
        self._done.append(call._replace(failed=failed, output=output))
        if not failed and len(self._supplied) < _SUPPLIED:
            for path, value in _leaves("$", parsed_output(output)):
                if len(text := text_of(value)) >= _SHORTEST:
                    self._supplied[text].add((call.tool, path))


def _acts(tool: Tool) -> Iterator[tuple[str, tuple[str, str]]]:
    """Where the paths are that a tool's several acts take; first where all of them are."""
    everywhere = [path for path in tool.inputs.get("path", ()) if "[*]" in path]
    if len(tool.acts_where) < 2 or not everywhere:
        return
    yield everywhere[0], ("any act", everywhere[0])
    listed, _, member = everywhere[0].partition("[*]")
    for act, (path, *_) in tool.acts_where.items():
        yield (f"{path}{member}" if path.startswith(f"{listed}[?") else path), (act, path)


def _is_name(tool: str) -> bool:
    """Whether a policy can name the tool. A call of `*` teaches nothing: as an entry it would allow every tool."""
    return is_plain(tool) and not any(selector_problems(tool, ()))


def _scalars(input: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The scalars of each input that is one, or a list of them; a list of one is written as the value is."""
    for key, value in input.items():
        place = path_to(key)
        if not isinstance(value, list):
            if not isinstance(value, dict):
                yield place, (value,)
        elif not any(isinstance(item, dict | list) for item in value):
            yield f"{place}[*]", tuple(scalars_in(value))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The scalars of an output, each with its path, the elements of lists together, and those of objects that are
    known by their ids; none of a text.
    """
    if isinstance(value, dict):
        for key, below in value.items():
            if isinstance(below, dict) and any(map(str.isdigit, key)):
                yield from _leaves(f"{path}[*]", below)
            elif key.isidentifier():
                yield from _leaves(f"{path}.{key}", below)
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(f"{path}[*]", below)
    elif path != "$" and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield path, value

"""Reading a script: every problem at once, each with its line and column or the path of its step."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import msgspec
import yaml
from msgspec import Meta

from proctor.policies.values.json_values import json_words
from proctor.supervisor.errors import UsageError

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]


class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every part of a script; unknown keys are errors."""


class Say(Written, frozen=True, kw_only=True):
    """The agent's text; with `stream`, also in pieces before."""

    say: str
    stream: bool = False


class Think(Written, frozen=True, kw_only=True):
    """The agent's thinking, as a content block of its own."""

    think: str
    stream: bool = False


class User(Written, frozen=True, kw_only=True):
    """A message of the user."""

    user: str


class CallHead(Written, frozen=True, kw_only=True):
    """A call without what follows it."""

    call: Name
    input: dict[str, Any] = {}
    id: Name | None = None


class Call(CallHead, frozen=True, kw_only=True):
    """One tool call; the steps under `if_...` follow if it ended that way."""

    if_completed: tuple[Step, ...] = ()
    if_failed: tuple[Step, ...] = ()
    if_denied: tuple[Step, ...] = ()


class Parallel(Written, frozen=True, kw_only=True):
    """Several calls of one turn, held and run in parallel."""

    parallel: Annotated[tuple[Call, ...], Meta(min_length=1)]


class Tokens(Written, frozen=True, kw_only=True):
    """The figures of a usage report, in tokens and USD; see `token_usage_updated`."""

    scope: Literal["delta", "cumulative"] = "delta"
    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    reasoning_tokens: Count = 0
    cost_usd: Annotated[float, Meta(ge=0)] | None = None
    model: str | None = None


class UsageStep(Written, frozen=True, kw_only=True):
    """A usage report."""

    usage: Tokens


class Silence(Written, frozen=True, kw_only=True):
    """Do nothing for some seconds, or until the run is cancelled."""

    silence: Seconds | Literal["forever"]


class Fail(Written, frozen=True, kw_only=True):
    """The agent's client fails with this message; nothing follows."""

    fail: str


class Output(Written, frozen=True, kw_only=True):
    """The output of the run; if left out, its last text."""

    output: Any


Step: TypeAlias = Say | Think | User | Call | Parallel | UsageStep | Silence | Fail | Output

STEPS: dict[str, type[Written]] = {
    "say": Say,
    "think": Think,
    "user": User,
    "call": Call,
    "parallel": Parallel,
    "usage": UsageStep,
    "silence": Silence,
    "fail": Fail,
    "output": Output,
}
"""The kinds of step by the key that names them."""
BRANCHES = ("if_completed", "if_failed", "if_denied")


class ScriptHead(Written, frozen=True, kw_only=True):
    """A script without its steps.

    `files` are written into the workspace before the first step: path -> text. `tools` are the names of its tools; if
    left out, all it has.
    """

    name: Name = "scripted"
    description: str | None = None
    model: Name = "scripted"
    tools: tuple[Name, ...] | None = None
    files: dict[Name, str] = {}


class Script(ScriptHead, frozen=True, kw_only=True):
    """A whole script: what the agent does, and the workspace it finds."""

    steps: tuple[Step, ...]


T = TypeVar("T", bound=Written)
Where: TypeAlias = tuple[str | int, ...]
ScriptSource: TypeAlias = Script | Mapping[str, Any] | str | Path
"""A script: read already, as data, as YAML text (it has a line break), or the path of a YAML file."""


def read_script(source: ScriptSource) -> Script:
    """Read and check a script. Raises UsageError listing every problem, each with its place."""
    if isinstance(source, Script):
        return source
    if not isinstance(source, Mapping | str | Path):
        raise UsageError(f"a script is a path, YAML text or a mapping, not a value of type `{type(source).__name__}`")
    if isinstance(source, Mapping):
        return _Reading("script", None).script(dict(source))
    name, text = _text(source)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise UsageError(f"{place}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not YAML: {error}") from None
    return _Reading(name, node).script(data)


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return "script", source
    try:
        return str(source), Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"script `{source}` is not valid UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"script `{source}` cannot be read: {reason.lower()}") from None


class _Reading:
    """Reads one script and collects its `problems`."""

    def __init__(self, name: str, node: yaml.Node | None) -> None:
        self._name = name
        self._node = node
        self._problems: list[str] = []

    def script(self, data: Any) -> Script:
        if not isinstance(data, dict) or not isinstance(data.get("steps"), list) or not data["steps"]:
            raise UsageError(f"{self._name}: a script is a mapping with `steps`, a list of one step or more")
        for path, key in _repeated(self._node, ()):
            self._complain(path, f"`{key.value}` is written twice", at=key)
        steps = self._steps(data.get("steps"), ("steps",))
        head = self._convert({k: v for k, v in data.items() if k != "steps"}, ScriptHead, ())
        self._check_ids(steps)
        self._check_files(head.files if head else {})
        if self._problems or head is None:
            raise UsageError("\n".join(self._problems))
        return Script(**msgspec.structs.asdict(head), steps=steps)

    def _steps(self, data: Any, where: Where) -> tuple[Step, ...]:
        if not isinstance(data, list):
            self._complain(where, "expected a list of steps")
            return ()
        read = (self._step(item, (*where, n)) for n, item in enumerate(data))
        return tuple(step for step in read if step is not None)

    def _step(self, data: Any, where: Where) -> Step | None:
        if not isinstance(data, dict):
            self._complain(where, "a step is a mapping such as `say: hello`")
            return None
        kinds = [key for key in data if key in STEPS]
        if kinds == ["call"]:
            return self._call(data, where)
        if len(kinds) != 1:
            names = ", ".join(f"`{kind}`" for kind in STEPS)
            found = " and ".join(f"`{kind}`" for kind in kinds)
            near = "".join(_suggestion(str(key), STEPS) for key in data)
            self._complain(where, f"a step has exactly one of {names}; found {found or 'none'}{near}")
            return None
        if kinds == ["parallel"]:
            return self._parallel(data, where)
        return cast("Step | None", self._convert(data, STEPS[kinds[0]], where))

    def _call(self, data: dict[str, Any], where: Where) -> Call | None:
        branches: dict[str, Any] = {
            name: self._steps(data[name], (*where, name)) for name in BRANCHES if name in data
        }
        head = self._convert({k: v for k, v in data.items() if k not in BRANCHES}, CallHead, where)
        return None if head is None else Call(call=head.call, input=head.input, id=head.id, **branches)

    def _parallel(self, data: dict[str, Any], where: Where) -> Parallel:
        where = (*where, "parallel")
        steps = self._steps(data["parallel"], where)
        for n, step in enumerate(steps):
            if not isinstance(step, Call):
                self._complain((*where, n), "only calls run side by side")
        if data["parallel"] == [] or len(data) > 1:
            self._complain(where, "a `parallel` step is a list of calls and nothing else")
        return Parallel(parallel=tuple(step for step in steps if isinstance(step, Call)))

    def _convert(self, data: Any, kind: type[T], where: Where) -> T | None:
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            message, _, path = json_words(error).partition(" at `$")
            near = ""
            if "unknown key" in message:
                near = _suggestion(message.split("`")[1], [*kind.__struct_fields__, *BRANCHES, "steps"])
            self._complain((*where, *_path(path)), message + near)
            return None

    def _check_ids(self, steps: tuple[Step, ...]) -> None:
        seen: set[str] = set()
        for call in _calls(steps):
            if call.id is not None and call.id in seen:
                self._complain((), f"two calls have the id `{call.id}`")
            seen.add(call.id or "")

    def _check_files(self, files: dict[str, str]) -> None:
        for path in files:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                self._complain(("files", path), "a file is given by its path within the workspace")

    def _complain(self, where: Where, message: str, *, at: yaml.Node | None = None) -> None:
        node = at or _node_at(self._node, where)
        place = f"{self._name}:{_mark(node)}" if node is not None else self._name
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
        self._problems.append(f"{place}: {f'`{path}`: ' if path else ''}{message}")


def _calls(steps: tuple[Step, ...]) -> Iterator[Call]:
    for step in steps:
        for call in step.parallel if isinstance(step, Parallel) else (step,):
            if isinstance(call, Call):
                yield call
                for branch in BRANCHES:
                    yield from _calls(getattr(call, branch))


def _path(text: str) -> Where:
    """`$.usage.input_tokens`, `$[2]` as msgspec writes places -> the keys and positions."""
    parts = text.strip("`").replace("[", ".").replace("]", "").split(".")[1:]
    return tuple(int(part) if part.isdigit() else part for part in parts if part != "...")


def _suggestion(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean `{near[0]}`?" if near and near[0] != name else ""


def _node_at(node: yaml.Node | None, where: Where) -> yaml.Node | None:
    """The node at the longest existing part of a path."""
    for part in where:
        if isinstance(node, yaml.MappingNode):
            node = next((value for key, value in node.value if key.value == part), node)
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
    return node


def _mark(node: yaml.Node) -> str:
    return f"{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _repeated(node: yaml.Node | None, where: Where) -> Iterator[tuple[Where, yaml.Node]]:
    """The keys that are written twice in one mapping."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield (*where, str(key.value)), key
            seen.add(str(key.value))
            yield from _repeated(value, (*where, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for n, item in enumerate(node.value):
            yield from _repeated(item, (*where, n))

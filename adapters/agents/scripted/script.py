"""Reading a script, as policy files are read: every problem at once, each with its line and column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from proctor.policies.errors import PolicyError, os_words
from proctor.policies.reading.convert import Converter
from proctor.policies.reading.sources import read_text
from proctor.policies.reading.tree import MapNode, ProblemReport, Unreadable, node_of, set_paths
from proctor.policies.values.model_base import Amount, Issue, Name, Natural, Record
from proctor.supervisor.errors import UsageError

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]


class Say(Record, frozen=True, kw_only=True):
    """The agent's text; with `stream`, also in pieces before."""

    say: str
    stream: bool = False


class Think(Record, frozen=True, kw_only=True):
    """The agent's thinking, as a content block of its own."""

    think: str
    stream: bool = False


class User(Record, frozen=True, kw_only=True):
    """A message of the user."""

    user: str


class Call(Record, frozen=True, kw_only=True):
    """One tool call; the steps under `if_...` follow if it ended that way."""

    call: Name
    input: dict[str, Any] = {}
    id: Name | None = None
    if_completed: tuple[Step, ...] = ()
    if_failed: tuple[Step, ...] = ()
    if_denied: tuple[Step, ...] = ()


class Parallel(Record, frozen=True, kw_only=True):
    """Several calls of one turn, held and run in parallel."""

    parallel: tuple[Call, ...]

    def problems(self) -> Iterator[Issue]:
        if not self.parallel:
            yield ("parallel",), "a `parallel` step is a list of calls; it has none"


class Tokens(Record, frozen=True, kw_only=True):
    """The figures of a usage report, in tokens and USD; see `token_usage_updated`."""

    scope: Literal["delta", "cumulative"] = "delta"
    input_tokens: Natural = 0
    output_tokens: Natural = 0
    cache_read_tokens: Natural = 0
    cache_write_tokens: Natural = 0
    reasoning_tokens: Natural = 0
    cost_usd: Amount | None = None
    model: str | None = None


class UsageStep(Record, frozen=True, kw_only=True):
    """A usage report."""

    usage: Tokens


class Silence(Record, frozen=True, kw_only=True):
    """Do nothing for some seconds, or until the run is cancelled."""

    silence: Seconds | Literal["forever"]


class Fail(Record, frozen=True, kw_only=True):
    """The agent's client fails with this message; nothing follows."""

    fail: str


class Output(Record, frozen=True, kw_only=True):
    """The output of the run; if left out, its last text."""

    output: Any


Step: TypeAlias = Say | Think | User | Call | Parallel | UsageStep | Silence | Fail | Output

BRANCHES = ("if_completed", "if_failed", "if_denied")


class Script(Record, frozen=True, kw_only=True):
    """A whole script: what the agent does, and the workspace it finds.

    `files` are written into the workspace before the first step: path -> text. `tools` are the names of its tools; if
    left out, all it has.
    """

    steps: tuple[Step, ...]
    name: Name = "scripted"
    description: str | None = None
    model: Name = "scripted"
    tools: tuple[Name, ...] | None = None
    files: dict[Name, str] = {}

    def problems(self) -> Iterator[Issue]:
        """There are steps, an id is one call's, and files are in the workspace."""
        if not self.steps:
            yield ("steps",), "a script is a list of one step or more"
        seen: set[str] = set()
        for call in _calls(self.steps):
            if call.id is not None and call.id in seen:
                yield (), f"two calls have the id `{call.id}`"
            seen.add(call.id or "")
        for path in self.files:
            if Path(path).is_absolute() or ".." in Path(path).parts:
                yield ("files", path), "a file is given by its path within the workspace"


def _calls(steps: tuple[Step, ...]) -> Iterator[Call]:
    for step in steps:
        for call in step.parallel if isinstance(step, Parallel) else (step,):
            if isinstance(call, Call):
                yield call
                for branch in BRANCHES:
                    yield from _calls(getattr(call, branch))


ScriptSource: TypeAlias = Script | Mapping[str, Any] | str | Path
"""A script: read already, as data, as YAML text (it has a line break), or the path of a YAML file."""


def read_script(source: ScriptSource) -> Script:
    """Read and check a script. Raises UsageError listing every problem, each with its place."""
    if isinstance(source, Script):
        return source
    if not isinstance(source, Mapping | str | Path):
        raise UsageError(f"a script is a path, YAML text or a mapping, not a value of type `{type(source).__name__}`")
    name, text = ("script", "") if isinstance(source, Mapping) else _text(source)
    report = ProblemReport(name, text)
    try:
        roots = [node_of(source)] if isinstance(source, Mapping) else read_text(text, report, "yaml")
    except Unreadable as error:
        place = ":".join(str(part) for part in (name, *error.span) if part)
        raise UsageError(f"{place}: {error.message}") from None
    if len(roots) != 1 or not isinstance(roots[0], MapNode):
        raise UsageError(f"{name}: a script is a mapping with `steps`, a list of one step or more")
    set_paths(roots[0])
    script: Script = Converter(report, {}).record(Script, roots[0])
    try:
        report.raise_if_any()
    except PolicyError as error:
        raise UsageError(str(error)) from None
    return script


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{")):
        return "script", source
    try:
        return str(source), Path(source).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"script `{source}` is not valid UTF-8") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"script `{source}` cannot be read: {os_words(error)}") from None

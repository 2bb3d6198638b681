"""What a scripted agent may do: one record a step, told apart by the key that names it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]


class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every part of a script; unknown keys are errors."""


class Say(Written, frozen=True, kw_only=True):
    """The agent's text; with `stream` it also comes in pieces before it comes whole."""

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
    """Several calls of one model response, held and run in parallel."""

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
    """Do nothing for some seconds, or until the run is ended."""

    silence: Seconds | Literal["forever"]


class Fail(Written, frozen=True, kw_only=True):
    """The agent's client fails with this message; nothing follows."""

    fail: str


class Output(Written, frozen=True, kw_only=True):
    """The output of the run; if left out, the last text it said."""

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

    `files` are written into the workspace before the first step: path -> text. `tools` are the names that the
    agent says it offers; if left out, all it has.
    """

    name: Name = "scripted"
    description: str | None = None
    model: Name = "scripted"
    tools: tuple[Name, ...] | None = None
    files: dict[Name, str] = {}


class Script(ScriptHead, frozen=True, kw_only=True):
    """A whole script: what the agent does, and the workspace it finds."""

    steps: tuple[Step, ...]

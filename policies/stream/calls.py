"""What a proposal is, what is known of the run around it, and what a judgement looks like."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ..errors import wrong_type
from ..violation import Action as Action
from ..violation import Enforcement as Enforcement
from ..violation import RefusalCause as RefusalCause
from ..violation import Violation as Violation
from .tools import Tool

ACTIONS: tuple[Action, ...] = ("allow", "warn", "request_approval", "deny", "cancel")
STRICTNESS: dict[str, int] = {action: rank for rank, action in enumerate(ACTIONS)}
"""Actions by strictness: a larger number refuses more."""


def rule_name(policy: str, rule: str) -> str:
    """`policy/rule`; an id that is repeated in its stack begins with its policy already."""
    return rule if rule.startswith(f"{policy}/") else "/".join(part for part in (policy, rule) if part)


# gc=False: what is asked and what is answered leads to plain JSON only, never back to itself.


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool call as an agent asks for it.

    Attributes:
        id: The call's id, as the client gives it.
        name: The tool, as the client calls it.
        input: The arguments: an object of JSON.
        turn: The number of the model response that asks for it, from 1; 0 is the current one.
        parent_tool_call_id: On a sub-agent's calls: the call that started the sub-agent.
    """

    id: str
    name: str
    input: dict[str, Any] = {}
    turn: int = 0
    parent_tool_call_id: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The combined answer for one proposed call.

    Attributes:
        action: The strictest action of the violations; `allow` without any.
        tool_call_id: The call's id.
        tool_name: Its tool.
        violations: Every rule that objects, strictest action first.
        tell_model: The text for the model where the call is refused; it names no rule.
        tool_input: Its arguments.
        errors: The ids of rules that raised; each refuses.
        steps: The explanation, filled when the monitor explains.
    """

    action: Action
    tool_call_id: str
    tool_name: str
    violations: tuple[Violation, ...] = ()
    tell_model: str | None = None
    tool_input: dict[str, Any] = {}
    errors: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()

    @property
    def input_digest(self) -> str:
        """The digest that an approval of this call is bound to."""
        return input_digest(self.tool_input)

    def explain(self) -> str:
        """Why this decision was taken, one step a line."""
        head = f"{self.tool_name} ({self.tool_call_id}): {self.action}"
        steps = self.steps or tuple(
            f"{rule_name(v.policy, v.rule)} ({v.kind}): {v.action} - {v.message}" for v in self.violations
        )
        return "\n".join([head, *(f"  {step}" for step in steps or ("no rule objects",))])


class RunContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who runs what, fixed when the run starts; rules name it in `when`. A field not given is absent; None says that
    there is none, and holds for nothing but `exists: false`.

    Attributes:
        user_role: The role of whoever the run is for.
        tenant: The tenant it is for.
        user: Whoever it is for.
        provider: The adapter's name; the supervisor fills it in.
        model: The model, where it is known before launch.
        run_id: The run; the supervisor fills it in.
        session_id: The session; the supervisor fills it in.
        workspace: The absolute directory that relative paths start from.
        home: The absolute directory that `~` stands for.
        shell: The shell that reads command lines, by its name: `bash`.
        labels: Anything to filter runs by: `$.labels.env`.
        metadata: Anything else the caller knows: `$.metadata.team`.
    """

    user_role: str | msgspec.UnsetType | None = msgspec.UNSET
    tenant: str | msgspec.UnsetType | None = msgspec.UNSET
    user: str | msgspec.UnsetType | None = msgspec.UNSET
    provider: str | msgspec.UnsetType | None = msgspec.UNSET
    model: str | msgspec.UnsetType | None = msgspec.UNSET
    run_id: str | msgspec.UnsetType | None = msgspec.UNSET
    session_id: str | msgspec.UnsetType | None = msgspec.UNSET
    workspace: str | msgspec.UnsetType | None = msgspec.UNSET
    home: str | msgspec.UnsetType | None = msgspec.UNSET
    shell: str | msgspec.UnsetType | None = msgspec.UNSET
    labels: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter can really do, so that nothing is promised that it cannot hold.

    Attributes:
        gate: Which calls are put to the supervisor before they run: `all`, `some` or `none`.
        rewrite: It runs a call with another input where the gate answers so.
        deny_ends_turn: A refusal ends the agent's turn.
        usage: When tokens are reported: `per_turn`, `at_end` or `none`.
        reports_cost: It states USD itself.
        cancel_kills_children: After a cancel no process that it started is alive.
        resume: It takes up its own earlier sessions.
        narrow: The model is offered only the tools that could be called now.
        compiles: The policy parts that it turns into launch options: `deny`, `allow`, `max_cost_usd`, ...
        tools: Its client's tools, with their portable names and inputs; a name alone is a tool of which no more is
            known. None where that is not known before launch.
        other_tools: There may be other tools than those, or fewer.
        mostly: What a tool of such a name mostly is: calls of tools that are not among `tools` are judged by it, and
            nothing is promised of it.
        elsewhere: Names, in lower case, that tools of other clients have.
        model: The model it will use; None where that is not known before launch.
        workspace: The absolute directory it works in.
        home: Its home directory.
        shell: The shell that reads its command lines: `bash`; None where that is not known.
    """

    gate: Literal["all", "some", "none"] = "none"
    rewrite: bool = False
    deny_ends_turn: bool = False
    usage: Literal["per_turn", "at_end", "none"] = "none"
    reports_cost: bool = False
    cancel_kills_children: bool = False
    resume: bool = False
    narrow: bool = False
    compiles: tuple[str, ...] = ()
    tools: Sequence[Tool | str] | None = None
    other_tools: bool = False
    mostly: tuple[Tool, ...] = ()
    elsewhere: frozenset[str] = frozenset()
    model: str | None = None
    workspace: str | None = None
    home: str | None = None
    shell: str | None = None

    def __post_init__(self) -> None:
        for name in ("tools", "compiles"):
            if isinstance(given := getattr(self, name), str):
                raise ValueError(f"`{name}` is a list of names, not the text `{given[:80]}`")
            if isinstance(given, list):
                msgspec.structs.force_setattr(self, name, tuple(given))

    @property
    def table(self) -> tuple[Tool, ...]:
        """The tools that are known; empty where none is."""
        return tuple(each if isinstance(each, Tool) else Tool(name=each) for each in self.tools or ())

    @property
    def judged_by(self) -> tuple[Tool, ...]:
        """The tools that are known, and what others mostly are."""
        named = {each.name.casefold() for each in self.tools or () if isinstance(each, Tool)}
        return (*self.table, *(each for each in self.mostly if each.name.casefold() not in named))

    @property
    def offered(self) -> tuple[str, ...] | None:
        """The names of all tools that the agent offers, where they are known."""
        return None if self.tools is None or self.other_tools else tuple(each.name for each in self.table)


class Usage(msgspec.Struct, kw_only=True):
    """Tokens and USD used so far. Totals never go down.

    Attributes:
        input_tokens: Tokens of input, cached ones included.
        output_tokens: Tokens of output, those of reasoning included.
        cache_read_tokens: Tokens of input read from the cache.
        cache_write_tokens: Tokens of input written to the cache.
        reasoning_tokens: Tokens of output that were reasoning.
        cost_usd: USD.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def total_tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens


class LimitWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that has passed its `warn_at`.

    Attributes:
        limit: The limit's name.
        used: How much is used: tokens, USD, milliseconds, calls or turns, as the limit counts.
        max: The limit, in the same unit.
        fraction: `used` divided by `max`, a fraction of 1.
    """

    limit: str
    used: float
    max: float
    fraction: float


fingerprint = msgspec.json.Encoder(order="deterministic").encode
"""The canonical JSON of a value: the same bytes for the same value, whatever the order of its keys."""

UNREADABLE = (RecursionError, UnicodeError, OverflowError, ValueError, TypeError, msgspec.MsgspecError)
"""What a value raises that cannot be written as JSON: it is too deep, a circle, broken text or of another type."""

MOST_PARTS = 200_000
"""How many lists, objects and elements an input may hold, those it shares counted wherever they stand."""
_NESTING = (dict, list, tuple)
_SCALARS = (str, int, float)
_PLAIN: frozenset[type] = frozenset((str, int, float, bool, type(None)))
"""What JSON has that holds nothing else."""
_TEXT: frozenset[type] = frozenset((str,))


def check_input(input: Any) -> None:
    """Raises TypeError for an input that is not an object or holds what JSON does not have, and ValueError for one
    with too many parts, or without an end.
    """
    if not isinstance(input, dict):
        raise TypeError(wrong_type("an object as a call's input", input))
    if _PLAIN.issuperset(map(type, input.values())) and _TEXT.issuperset(map(type, input)):
        return  # it holds texts and numbers only
    stack: list[Any] = [input]
    left = MOST_PARTS
    while stack:
        outer = stack.pop()
        left -= 1 + len(outer)
        if left < 0:
            raise ValueError(f"a value in a circle, or of more than {MOST_PARTS:,} parts")
        if isinstance(outer, dict):
            for key in outer:
                if type(key) is not str and not isinstance(key, str):
                    raise TypeError(f"a key of type `{type(key).__name__}`; in JSON every key is a text")
        for inner in outer.values() if isinstance(outer, dict) else outer:
            if isinstance(inner, _NESTING):
                stack.append(inner)
            elif type(inner) not in _PLAIN and not isinstance(inner, _SCALARS):
                raise TypeError(f"a Python object of type `{type(inner).__name__}`, which JSON does not have")


def exact(value: Any) -> Any:
    """A value whose whole numbers are all written as such: 7.0 as 7."""
    return _whole(value) if _has_float(value) else value


def _has_float(value: Any) -> bool:
    for inner in value.values() if isinstance(value, dict) else value:
        kind = type(inner)
        if kind is float or (kind in _NESTING and _has_float(inner)):
            return True
    return False


def _whole(value: Any) -> Any:
    if type(value) is float:
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list | tuple) else value


def input_digest(input: dict[str, Any]) -> str:
    """The digest an approval is bound to: SHA-256 over the canonical JSON of the call's input, in which 7.0 is 7."""
    return hashlib.sha256(fingerprint(exact(input))).hexdigest()


_SENTENCES: dict[RefusalCause, str] = {
    "tool": "Tool '{}' is not available in this context.",
    "input": "Tool '{}' may not be used with this input.",
    "step": "Tool '{}' may not be used yet.",
    "budget": "No more calls of tool '{}' are allowed in this run.",
}


ID_NOT_OVER = "This call of tool '{}' has the id of a call that has not ended. Use another id."
ID_OF_EARLIER = "This call of tool '{}' has the id of an earlier call. Use another id."


def tell_model_default(tool_name: str, cause: RefusalCause = "tool") -> str:
    """What the model is told of a refused call unless the rule says otherwise: nothing of the rules."""
    return _SENTENCES[cause].format(tool_name)

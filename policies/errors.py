"""Errors raised while policies are read and applied.

ProctorError                    .code
├── PolicyError                 bad_policy         a policy that cannot be read; .problems
├── EventError                  bad_event          an event or a snapshot that cannot be read
├── UnjudgeableLineError        unjudgeable_line   a command line that cannot be taken apart with certainty
└── PolicyViolationError        policy_violation   a policy that refuses: preflight, or a run
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

Action: TypeAlias = Literal["allow", "warn", "request_approval", "deny", "cancel"]
RefusalCause: TypeAlias = Literal["tool", "input", "step", "budget"]
"""The denied part of a call: the tool as such, its input, a missing earlier step, or an exhausted budget."""

Enforcement: TypeAlias = Literal["prevented", "interrupted", "observed"]


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One rule's finding about one event or call.

    Attributes:
        policy: The policy that the rule is in.
        stack: The name of the whole stack.
        rule: The rule's id.
        kind: The rule's type, the limit's name, or `net`.
        action: The rule's action.
        enforcement: How far the call got: `prevented`, `interrupted` or `observed`.
        message: The violation, in words.
        details: Expected and actual values, and the conditions.
        reason: The rule's `reason`, for telemetry; the model never sees it.
        tell_model: The rule's text for the model.
        unpreventable: The action that replaces `deny` if the agent can't hold calls.
        tool_call_id: The call, if one caused it.
        tool_name: Its tool.
        cause: What was denied: the `tool` as such, its `input`, a missing `step`, an exhausted `budget`.
        at_end: True if it was found at the end of the run; a resumed session can still change it.
    """

    policy: str
    stack: str
    rule: str
    kind: str
    action: Action
    enforcement: Enforcement
    message: str = ""
    details: dict[str, Any] = {}
    reason: str | None = None
    tell_model: str | None = None
    unpreventable: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    cause: RefusalCause = "tool"
    at_end: bool = False


A = TypeVar("A")
T = TypeVar("T")


class ProctorError(Exception):
    """The root of every error this project raises on purpose; branch on `code`."""

    code: ClassVar[str] = "error"


def wrong_type(wanted: str, given: object) -> str:
    """The message for a value of the wrong kind."""
    return f"expected {wanted}, got a value of type `{type(given).__name__}`"


def not_a_policy(given: object) -> str:
    """The message for another value in place of a policy, and what makes a policy of it."""
    remedy = "; `merge_policies` makes one of a list" if isinstance(given, list | tuple) else ""
    if isinstance(given, str | PurePath):
        remedy = "; `load_policies(path)` reads a file, `parse_policies(text)` a text"
    return wrong_type("a policy", given) + remedy


def os_words(error: Exception) -> str:
    """What the system says of a failure, without number and path; of another error its own words."""
    if isinstance(error, UnicodeDecodeError):
        return "the text is not UTF-8"
    return (getattr(error, "strerror", None) or str(error)).lower()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong in a policy text, and where.

    Attributes:
        message: The problem, in words.
        path: The path in the document: `rules[2].tool`.
        file: The file, if it came from one.
        line: The line, from 1; 0 is unknown.
        column: The column, from 1; 0 is unknown.
        source: The text of the line.
        suggestion: How to fix it.
    """

    message: str
    path: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    source: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        where = f" at `{self.path}`" if self.path else ""
        hint = f"; {self.suggestion}" if self.suggestion else ""
        return f"{place + ': ' if place else ''}{self.message}{where}{hint}"


PROBLEMS_SHOWN = 20
"""How many problems a message has at most: one mistake of a program that writes policies is made on every line."""


class PolicyError(ProctorError, ValueError):
    """A policy that cannot be read. Its text has the first problems, and how many more there are.

    Attributes:
        problems: All that is wrong, in the order of the text.
    """

    code = "bad_policy"

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        if isinstance(problems, str):
            problems = [Problem(message=problems)]
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:PROBLEMS_SHOWN]]
        if more := len(self.problems) - len(lines):
            lines.append(f"... and {more:,} more")
        super().__init__("\n".join(lines))


def read_each(read: Callable[[A], T], given: Iterable[A]) -> list[T]:
    """Apply `read` to each. Raises PolicyError with the problems of all of them."""
    found: list[T] = []
    problems: list[Problem] = []
    for one in given:
        try:
            found.append(read(one))
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(problems)
    return found


class EventError(ProctorError, ValueError):
    """An event, or a stored state, that cannot be read."""

    code = "bad_event"


class UnjudgeableLineError(ProctorError, ValueError):
    """A command line that cannot be parsed with certainty, so that its commands are unknown."""

    code = "unjudgeable_line"


class PolicyViolationError(ProctorError):
    """A policy rejected the run at preflight, or cancelled it.

    Attributes:
        message: The reason, in words.
        violations: The violations.
        violation: The violation that ended the run; None at preflight.
        rule: The id of the rule, or the name of the limit, that ended the run; at preflight, of the first finding.
        reason: The reason that this rule carries, if any.
        calls_before: The calls that ran in the session before this run; those of the run are in `partial.calls`.
        findings: The findings for which preflight rejected the run.
        partial: The run's result so far: output, usage, cost, calls; None if nothing ran.
        provider_error: The provider's own error, if there is one.
    """

    code = "policy_violation"

    def __init__(
        self,
        message: str,
        *,
        violations: Sequence[Violation] = (),
        findings: Sequence[Any] = (),
        violation: Violation | None = None,
        calls_before: Sequence[Any] = (),
        partial: Any = None,
        provider_error: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        self.violation = violation or next(iter(violations), None)
        self.rule: str | None = getattr(self.violation or next(iter(findings), None), "rule", None)
        self.reason = self.violation.reason if self.violation is not None else None
        self.calls_before = tuple(calls_before)
        self.violations = tuple(violations)
        self.findings = tuple(findings)
        self.partial = partial
        self.provider_error = provider_error

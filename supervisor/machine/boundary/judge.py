"""What a run needs of the policies: one session's judge, made of a compiled policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from proctor.policies.budget import BudgetClaim
from proctor.policies.stream.calls import Decision, LimitWarning, ToolCall, Usage, Violation
from proctor.policies.stream.events import Event

AsyncCheck: TypeAlias = tuple[str, Callable[[ToolCall], Awaitable[Any]]]
"""A check that needs to wait: its name, and what answers it."""


class SettledReport(Protocol):
    """How each rule ended, and what was violated."""

    @property
    def rules(self) -> Mapping[str, Any]: ...

    @property
    def violations(self) -> Sequence[Violation]: ...


class Nets(Protocol):
    """The nets of one session, which may join and leave while it goes on."""

    def add_net(self, net: Any, **attached: Any) -> None: ...

    def remove_net(self, name: str) -> None: ...

    def status(self) -> str: ...

    def resolve(self, tool: str, input: dict[str, Any] | None = ...) -> Mapping[str, str]: ...


class Judge(Nets, Protocol):
    """The part of a monitor a run uses; every method is synchronous and pure in effect."""

    @property
    def usage(self) -> Usage: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def calls(self) -> int: ...

    @property
    def budgets(self) -> Sequence[BudgetClaim]: ...

    def propose(self, call: ToolCall, checks: Mapping[str, Any] = ...) -> Decision: ...

    def async_checks(self, call: ToolCall) -> Sequence[AsyncCheck]: ...

    def observe(self, event: Event) -> Sequence[Violation]: ...

    def tick(self, now_ms: int) -> Sequence[Violation]: ...

    def deadline(self) -> int | None: ...

    def warnings(self) -> Sequence[LimitWarning]: ...

    def narrow(self, tools: Sequence[str]) -> list[str]: ...

    def finish(self) -> SettledReport: ...

"""The policy files that judge hooks, read again when they have changed; and a session's judge, for a client that asks
its person itself, several questions at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from proctor.policies import (
    CompiledPolicy,
    Decision,
    Policy,
    RunContext,
    ToolCall,
    Violation,
    compile_policy,
    load_policies,
    merge_policies,
)
from proctor.policies.events import ToolCallStarted
from proctor.policies.events.calls import NeedsChecks
from proctor.policies.events.run_context import Tool
from proctor.policies.monitor.monitor import ListAdmission, Monitor, decision_on
from proctor.policies.policy import members_of
from proctor.supervisor.launch.plan import written
from proctor.supervisor.machine.event_factory import granted
from proctor.supervisor.machine.gate import described
from proctor.supervisor.ports.stored_types import ApprovalRequest

Unmatched: TypeAlias = Literal["ask", "allow", "deny"]
"""The treatment of a call that no rule objects to and no allow list admits: `ask` leaves it to the client."""
_RUNS = ("allow", "warn")


class AskingJudge:
    """A monitor that can judge a new call as if the person had agreed to every call being asked about.

    Two questions at once could otherwise both be answered yes and together spend more than there is.
    `latest` is the latest decision, `admission` whether allow lists admit that call; where `unmatched` is `deny`, one
    that none admits is refused.
    """

    def __init__(self, compiled: CompiledPolicy, monitor: Monitor, unmatched: Unmatched = "ask") -> None:
        self._compiled = compiled
        self._monitor = monitor
        self._denies_unmatched = unmatched == "deny"
        self.admission = ListAdmission()
        self._agreed: Sequence[ApprovalRequest] = ()
        self.latest: Decision | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._monitor, name)

    @contextmanager
    def supposing(self, agreed: Sequence[ApprovalRequest]) -> Iterator[None]:
        """Judge proposals inside the block as if these were granted and ran."""
        self._agreed = agreed
        try:
            yield
        finally:
            self._agreed = ()

    def decide(self, call: ToolCall, checks: Mapping[str, Any] | None = None) -> Decision | NeedsChecks:
        """Decide on a call; only one that may run under the supposition, too, is let through."""
        self.admission = self._monitor.admission(call)
        unmatched = self._denies_unmatched and not self.admission.rules
        decision = self._supposed(call, checks) if self._agreed or unmatched else None
        if isinstance(decision, NeedsChecks):
            return decision
        if unmatched and decision is not None and decision.action in _RUNS:
            decision = self._unmatched(call)
        elif decision is None or decision.action in (*_RUNS, "request_approval"):
            decided = self._monitor.decide(call, checks)
            if isinstance(decided, NeedsChecks):
                return decided
            decision = decided
        self.latest = decision
        return decision

    def _unmatched(self, call: ToolCall) -> Decision:
        why = self.admission.why_not
        violation = Violation(
            policy=self._compiled.name,
            stack=self._compiled.name,
            rule="unmatched",
            kind="unmatched",
            action="deny",
            enforcement="prevented",
            message=f"nothing allows `{call.name}`: {why}",
            details={"expected": "a call that an allow list admits", "actual": why},
            tool_call_id=call.id,
            tool_name=call.name,
        )
        return decision_on(call, [violation], ())

    def _supposed(self, call: ToolCall, checks: Mapping[str, Any] | None) -> Decision | NeedsChecks:
        trial = self._compiled.restore(self._monitor.snapshot())
        for request in self._agreed:
            trial.observe(granted(request, by="", reason=None))
            trial.observe(ToolCallStarted(**described(request.call)))
        return trial.decide(call, checks)


FileStates: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Of each file its path, inode, size and time of change."""


class Rules(msgspec.Struct, frozen=True):
    """One reading of the files; `limits` are the names of those that are set, and of those of budgets, `metadata`
    what each run's record keeps.
    """

    policy: Policy
    compiled: CompiledPolicy
    context: RunContext
    limits: frozenset[str]
    metadata: dict[str, Any]


class RuleFiles:
    """The files and the context that a hook's command line names; `tools` are the client's."""

    def __init__(self, files: Sequence[str], context: RunContext, tools: Sequence[Tool]) -> None:
        self._files = files
        self._context = context
        self._tools = tools
        self._read: tuple[FileStates, Rules] | None = None

    def current(self) -> Rules:
        """The rules as the files have them now; the same object as long as they do not change. Raises PolicyError."""
        state = tuple(_states(self._files))
        if self._read is None or self._read[0] != state:
            self._read = None
            self._read = state, _rules(self._files, self._context, self._tools)
        return self._read[1]


def _rules(files: Sequence[str], context: RunContext, tools: Sequence[Tool]) -> Rules:
    policy = merge_policies([policy for file in files for policy in load_policies(file)])
    members = members_of(policy)
    limits = frozenset(name for member in members for name, _ in member.limits.given())
    limits |= {budget.limit for member in members for budget in member.budgets}
    metadata: dict[str, Any] = {"policy": policy.name, "policies": written(members)}
    return Rules(policy, compile_policy(policy, tools=tuple(tools)), context, limits, metadata)


def _states(files: Sequence[str]) -> Iterator[tuple[str, int, int, int]]:
    """Properties that change when a file, or one in a folder of files, changes; a missing file is left to its
    reader.
    """
    for file in files:
        path = Path(file)
        for one in (path, *sorted(path.rglob("*"))) if path.is_dir() else (path,):
            try:
                found = os.stat(one)
            except OSError:
                yield str(one), 0, 0, 0
            else:
                yield str(one), found.st_ino, found.st_size, found.st_mtime_ns

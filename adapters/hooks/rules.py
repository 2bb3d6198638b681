"""The policy files that judge hooks, read again when they have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from proctor.policies import CompiledPolicy, Policy, RunContext, compile_policy, load_policies, merge_policies
from proctor.policies.events.run_context import Tool
from proctor.policies.policy import members_of
from proctor.supervisor.launch.plan import written

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

"""What `compile_policy` gives: a policy ready to judge any number of sessions."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import wrong_type
from ..events.run_context import RunContext, Tool
from ..policy import Approval, Policy
from ..rules.petri_net import Mappers, OnResults, Validators
from .limit_checker import LimitChecker
from .monitor import Monitor
from .program import CompiledRule, Program, program_of
from .snapshots import read
from .state import MonitorState

CLIENTS_REMEMBERED = 64
"""How many agents' tool sets a policy is kept compiled for."""


class CompiledPolicy:
    """A compiled policy: immutable, and safe to share between runs and threads. Start a monitor for each session."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._for_tools: dict[int, tuple[tuple[Tool, ...], CompiledPolicy]] = {}

    @property
    def policy(self) -> Policy:
        """The policy or stack that was compiled."""
        return self.program.policy

    @property
    def name(self) -> str:
        """Its name."""
        return self.program.name

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """Its rules, tool rules and nets, in the stack's order."""
        return self.program.rules

    @property
    def limits(self) -> LimitChecker:
        """Its limits."""
        return self.program.limits

    @property
    def approval(self) -> Approval:
        """How long a call waits for an approval, and what happens then."""
        return self.program.approval

    def passed_on(self, context: RunContext) -> tuple[Policy, ...]:
        """The budgets of a run with this context, as policies for its child runs."""
        return self.program.budgets.passed_on(self.policy, context)

    def for_tools(self, tools: tuple[Tool, ...]) -> CompiledPolicy:
        """This policy for an agent with these tools; the same object for the same tools."""
        cached = self._for_tools.get(id(tools))
        if cached is None:
            if len(self._for_tools) >= CLIENTS_REMEMBERED:
                self._for_tools.clear()
            made = CompiledPolicy(self.program.for_tools(tools)) if tools else self
            cached = self._for_tools[id(tools)] = (tools, made)
        return cached[1]

    def monitor(self, context: RunContext | None = None, *, explain: bool = False) -> Monitor:
        """A monitor for a new session. With `explain`, each decision has its steps.

        Raises ValueError for anything that is not a RunContext.
        """
        if context is None:
            context = RunContext()
        if not isinstance(context, RunContext):
            raise ValueError(wrong_type("a run context", context))
        return Monitor(MonitorState(self.program.for_context(context), context), explain=explain)

    def restore(self, snapshot: bytes, *, explain: bool = False) -> Monitor:
        """A monitor as it was when the snapshot was taken. Raises EventError."""
        return Monitor(read(self.program, snapshot), explain=explain)


def compile_policy(
    policy: Policy,
    *,
    tools: Iterable[Tool] = (),
    validators: Validators | None = None,
    on_results: OnResults | None = None,
    mappers: Mappers | None = None,
) -> CompiledPolicy:
    """Compile a policy or a merged stack.

    Args:
        policy: the policy.
        tools: the agent's tools with portable names and inputs, if known.
        validators: functions that validate calls under a net, by the net's name.
        on_results: functions that receive the results of such calls, by the net's name.
        mappers: functions that give calls more names for a net, by the net's name.

    Raises:
        PolicyError: the policy is wrong; every problem is named.
    """
    return CompiledPolicy(program_of(policy, tools, validators or {}, on_results or {}, mappers or {}))

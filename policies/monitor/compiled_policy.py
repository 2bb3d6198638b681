"""What `compile_policy` gives: a policy ready to evaluate any number of sessions.

The stages, each on the whole policy: check, ids and actions, machines; `program` indexes these by tool.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import PolicyError, wrong_type
from ..events.run_context import RunContext, Tool
from ..language.facts import ToolTable
from ..policy import Policy
from ..rules.net_shorthand import net_of
from ..rules.per_key import Keyed
from ..rules.petri_net import Mappers, Net, NetMachine, OnResults, Validators
from ..rules.python_check import CheckMachine
from ..stack.clauses import clauses_of
from ..stack.merge import checked_stack, effective_budgets, effective_limits
from .limit_checker import BudgetChecker, LimitChecker
from .monitor import Monitor
from .program import CompiledRule, Program, check_hooks, compiled_rule
from .snapshots import read
from .state import MonitorState


class CompiledPolicy(Program):
    """A compiled policy: immutable, and safe to share between runs and threads. Start a monitor for each session.

    Attributes:
        policy: The policy or stack that was compiled.
        name: Its name.
        rules: Its rules, tool rules and nets, in the stack's order.
        limits: Its limits.
        budgets: Its budgets.
        approval: How long a call waits for an approval, and what happens then.
    """

    def monitor(self, context: RunContext | None = None, *, explain: bool = False) -> Monitor:
        """A monitor for a new session. With `explain`, each decision has its steps.

        Raises ValueError for anything that is not a RunContext.
        """
        if context is None:
            context = RunContext()
        if not isinstance(context, RunContext):
            raise ValueError(wrong_type("a run context", context))
        return Monitor(MonitorState(self.for_context(context), context), explain=explain)

    def restore(self, snapshot: bytes, *, explain: bool = False) -> Monitor:
        """A monitor as it was when the snapshot was taken. Raises EventError."""
        return Monitor(read(self, snapshot), explain=explain)


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
    attached = {"validate": validators or {}, "on_result": on_results or {}, "mapper": mappers or {}}
    stack = checked_stack(policy)
    _check_attached(stack, [each for functions in attached.values() for each in functions.items()])
    rules = tuple(_rules(stack, attached))
    rejects = stack.unpriced == "reject"
    limits = LimitChecker(effective_limits(stack), reject_unpriced=rejects)
    budgets = BudgetChecker(effective_budgets(stack), reject_unpriced=rejects)
    return CompiledPolicy(stack, rules, limits, budgets, ToolTable(tools))


def _rules(stack: Policy, attached: Mapping[str, Mapping[str, Any]]) -> Iterator[CompiledRule]:
    for number, clause in enumerate(clauses_of(stack)):
        machine = clause.machine()
        if isinstance(machine, NetMachine):
            name = machine.net.name
            hooks = {kind: functions[name] for kind, functions in attached.items() if name in functions}
            machine = machine.with_hooks(hooks) if hooks else machine
        elif isinstance(machine, CheckMachine):
            machine.rule_id = clause.id
        elif clause.key is not None:
            machine = Keyed(machine, clause.key)
        yield compiled_rule(number, clause, machine)


def _check_attached(stack: Policy, attached: Sequence[tuple[str, object]]) -> None:
    """Raises PolicyError for a function attached to a net that the policy does not have, or that cannot be called."""
    nets = {made.name for net in stack.nets if isinstance(made := net_of(net), Net)}
    if unknown := sorted({name for name, _ in attached} - nets):
        names = ", ".join(f"`{name}`" for name in unknown)
        raise PolicyError(f"no net is called {names}, and a validator, result hook or mapper is attached to it")
    check_hooks(attached)

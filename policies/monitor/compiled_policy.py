"""What `compile_policy` gives: a policy ready to judge any number of sessions.

The stages, each on the whole policy: check, ids and actions, machines; `program` indexes these by tool.
"""

from collections.abc import Iterable, Iterator, Sequence

from ..errors import PolicyError, wrong_type
from ..events.run_context import RunContext, Tool
from ..language.facts import ToolTable
from ..language.selectors import NameScope
from ..policy import Allow, Deny, Policy
from ..rules.machine import Machine
from ..rules.net_shorthand import net_of
from ..rules.per_key import Keyed
from ..rules.petri_net import Mappers, Net, NetMachine, OnResults, Validators
from ..rules.python_check import CheckMachine
from ..rules.rule import Rule
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
    validators, on_results, mappers = validators or {}, on_results or {}, mappers or {}
    stack = checked_stack(policy)
    _check_attached(stack, [*validators.items(), *on_results.items(), *mappers.items()])
    rules = tuple(_machines(stack, validators, on_results, mappers))
    rejects = stack.unpriced == "reject"
    limits = LimitChecker(effective_limits(stack), reject_unpriced=rejects)
    budgets = BudgetChecker(effective_budgets(stack), reject_unpriced=rejects)
    return CompiledPolicy(stack, rules, limits, budgets, ToolTable(tools))


def _machines(
    stack: Policy, validators: Validators, on_results: OnResults, mappers: Mappers
) -> Iterator[CompiledRule]:
    for number, clause in enumerate(clauses_of(stack)):
        record = clause.record
        if isinstance(record, Net):
            hooks = validators.get(record.name), on_results.get(record.name), mappers.get(record.name)
            machine: Machine = NetMachine(record, clause.scope, *hooks)
        else:
            machine = _machine_of(clause.id, record, clause.scope)
        yield compiled_rule(number, clause.id, clause.policy, clause.action, record, machine)


def _check_attached(stack: Policy, attached: Sequence[tuple[str, object]]) -> None:
    """Raises PolicyError for a function attached to a net that the policy does not have, or that cannot be called."""
    nets = {made.name for net in stack.nets if isinstance(made := net_of(net), Net)}
    if unknown := sorted({name for name, _ in attached} - nets):
        names = ", ".join(f"`{name}`" for name in unknown)
        raise PolicyError(f"no net is called {names}, and a validator, result hook or mapper is attached to it")
    check_hooks(attached)


def _machine_of(id: str, clause: Rule | Allow | Deny, scope: NameScope) -> Machine:
    machine = clause.compile(scope)
    if isinstance(machine, CheckMachine):
        machine.rule_id = id
    return Keyed(machine, clause.key) if isinstance(clause, Rule) and clause.key is not None else machine

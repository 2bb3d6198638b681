"""The naive engine: every clause's decision on a call, and its status at the end."""

from collections.abc import Callable

from . import count, lists, nets, order, precondition, provenance, repeats, sequence
from .keyed import instance, instances, keys
from .selecting import applies, meets
from .stacks import Clause, clauses, strictest
from .trace import Call, Rule, World

OBJECTS: dict[str, Callable[[Rule, World, Call], bool]] = {
    "allow": lists.allowlist,
    "deny": lists.blocklist,
    "allowlist": lists.allowlist,
    "blocklist": lists.blocklist,
    "require": lambda rule, world, call: False,
    "count": count.exceeds,
    "max_calls": count.exceeds,
    "before": order.before,
    "immediately_before": order.immediately_before,
    "after": order.after,
    "eventually": order.eventually,
    "never_after": order.never_after,
    "forbids_after": order.forbids_after,
    "sequence": sequence.sequence,
    "forbidden_sequence": sequence.forbidden_sequence,
    "precondition": precondition.precondition,
    "provenance": provenance.provenance,
    "loop": repeats.loop,
    "max_parallel": repeats.max_parallel,
    "circuit_breaker": repeats.circuit_breaker,
}
OWES: dict[str, Callable[[Rule, World], bool]] = {
    "require": count.required,
    "count": count.owes,
    "after": order.after_owes,
    "eventually": order.eventually_owes,
    "sequence": sequence.sequence_owes,
}
SESSION = frozenset({"require", "eventually"})
"""They are about the session as a whole, so they are always exercised."""
EVERY_CALL = frozenset({"allow", "deny", "allowlist", "blocklist", "circuit_breaker"})
RESTRICTED = {
    "before": "then",
    "immediately_before": "then",
    "after": "trigger",
    "never_after": "forbidden",
    "forbids_after": "tools",
    "sequence": "tools",
}
"""The field that names the restricted calls of a rule; `tool` for the others."""


class Engine:
    """A stack of documents, evaluated without state."""

    def __init__(self, stack: list[Rule], context: Rule | None = None) -> None:
        conditions = [(clause, clause.rule.get("when", ())) for clause in clauses(stack)]
        self.clauses = [clause for clause, when in conditions if applies(when, context or {})]

    def evaluate(self, world: World, call: Call, *, observed: bool = False) -> list[tuple[str, str]]:
        """The ids of the violated clauses and their actions, strictest first; an approval satisfies its own."""
        violated = [(each, self._objection(each, world.under(each.policy), call)) for each in self.clauses]
        if not any(clause.kind == "net" and action in ("deny", "cancel") for clause, action in violated):
            validated = [each for each in self.clauses if each.kind == "net"]
            violated += [(c, c.action) for c in validated if nets.invalid(c.rule, world.under(c.policy), call)]
        standing = [
            (clause, action)
            for clause, action in violated
            if not (call.approved and action == "request_approval" and clause.id in call.shown)
        ]
        objects = [(clause.id, action) for clause, action in standing if action]
        return sorted(objects, key=lambda each: -_strictness(each[1]))

    def _objection(self, clause: Clause, world: World, call: Call) -> str | None:
        if clause.kind == "net":
            answer = nets.blocked_or_manual(clause.rule, world, call)
            return clause.action if answer == "blocked" else "request_approval" if answer else None
        objects, key = OBJECTS[clause.kind], clause.rule.get("key")
        worlds = [world] if key is None else [instance(key, value, world) for value in keys(key, call)]
        return clause.action if any(objects(clause.rule, each, call) for each in worlds) else None

    def tripped_now(self, world: World) -> list[str]:
        """The breakers that the last event has opened."""
        found = []
        for clause in self.clauses:
            if clause.kind == "circuit_breaker":
                key = clause.rule.get("key")
                worlds = [world] if key is None else instances(key, world)
                if any(repeats.tripped(clause.rule, each) == world.clock for each in worlds):
                    found.append(clause.id)
        return found

    def owes(self, clause: Clause, world: World) -> bool:
        """Whether the end of the session would violate a clause."""
        world = world.under(clause.policy)
        key, owes = clause.rule.get("key"), OWES.get(clause.kind, _owes_nothing)
        worlds = [world] if key is None else [w for w in instances(key, world) if self._begun(clause, w)]
        return any(owes(clause.rule, each) for each in worlds)

    def status(self, clause: Clause, world: World, violated: set[str], *, complete: bool = True) -> str:
        """The status of a clause."""
        owed, world = self.owes(clause, world), world.under(clause.policy)
        if clause.id in violated or (owed and complete):
            return "violated"
        if owed:
            return "pending"
        return "held" if self._exercised(clause, world) else "not_exercised"

    def _begun(self, clause: Clause, world: World) -> bool:
        """An instance starts with the first counted call that the rule names."""
        counted = world.calls if clause.rule.get("of") == "attempted" else world.started()
        return self._exercised(clause, world.only(counted))

    def _exercised(self, clause: Clause, world: World) -> bool:
        if clause.kind in SESSION:
            return True
        if clause.kind in EVERY_CALL:
            return bool(world.calls)
        if clause.kind == "net":
            return any(nets.names_it(clause.rule, world, call) for call in world.calls)
        if clause.kind == "forbidden_sequence":
            selector = clause.rule["sequence"][-1]
        else:
            selector = clause.rule.get(RESTRICTED.get(clause.kind, "tool"), "*")
        return any(meets(selector, call, world, permits=False) for call in world.calls)


def _owes_nothing(rule: Rule, world: World) -> bool:
    return False


def _strictness(action: str) -> int:
    return ["allow", "warn", "request_approval", "deny", "cancel"].index(action)


__all__ = ["Engine", "strictest"]

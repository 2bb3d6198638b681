"""A rule in a search, as written and as compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from ..language.conditions import has_references
from ..language.selectors import ToolWhere, VirtualTool
from ..rules.precondition import Precondition
from ..rules.provenance import Provenance
from ..rules.python_check import Check
from ..rules.rule import Rule, items_of
from .components import RuleComponent
from .split_component import SplitComponent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..events.run_context import RunContext
    from ..language.facts import ToolTable
    from ..monitor.program import CompiledRule
    from ..stack.clauses import Clause
    from .split_component import Component


class PlayedRule(NamedTuple):
    """A rule in a search, as written and as compiled, with the virtual tools of its policy."""

    clause: Clause
    rule: CompiledRule
    virtual_tools: tuple[VirtualTool, ...] = ()

    @property
    def sentence(self) -> tuple[type, dict[str, Any]]:
        """Its meaning: what is written, without its id, where it holds, and what becomes of a violation."""
        silent = {"id", "action", "reason", "tell_model", "description", "when", "unpreventable"}
        record = self.clause.record
        written = msgspec.structs.asdict(record)
        return type(record), {name: value for name, value in written.items() if name not in silent}

    @property
    def wheres(self) -> Iterator[ToolWhere]:
        """Its selectors that ask for more than a name."""
        for selector in self.clause.roles.all():
            yield from (item for item in items_of(selector) if isinstance(item, ToolWhere) and item.where)

    @property
    def requirements(self) -> Iterator[Any]:
        """The `prior` requirements of a precondition."""
        record = self.clause.record
        requires = record.requires if isinstance(record, Precondition) else ()
        yield from (inner for each in requires for inner in each.flat() if inner.prior is not UNSET)

    @property
    def unsupported(self) -> str:
        """Why no component can stand for it; "" if one can."""
        record = self.clause.record
        if isinstance(record, Check):
            return "a Python check may answer anything"
        conditions = [c for where in self.wheres for c in where.where]
        conditions += [c for each in self.requirements for c in each.output]
        if has_references(conditions):
            return "conditions that refer to the judged call (`arg`) or to earlier outputs (`output_of`)"
        if isinstance(record, Rule) and record.key is not None and any(each.same for each in self.requirements):
            return "`same` under a `key`"
        return ""

    @property
    def bound_paths(self) -> frozenset[str]:
        """The paths whose values it compares with those of other calls, where it judges."""
        record = self.clause.record
        found = {same.path for each in self.requirements for same in each.same}
        if isinstance(record, Provenance):
            found.add(record.path)
        if isinstance(record, Rule) and record.key is not None:
            found.add(record.key)
        return frozenset(found)

    def component(self, index: int, tools: ToolTable, context: RunContext, *, asked_of: bool) -> Component:
        """The component that represents the rule in a search; `asked_of`: as a rule of the stack, not of the
        property.
        """
        if self.bound_paths:
            return SplitComponent(index, self.rule, tools, context, self.bound_paths, asked_of=asked_of)
        return RuleComponent(index, self.rule, tools, context)

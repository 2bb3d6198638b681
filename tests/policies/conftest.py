"""Helpers for writing sessions in tests: which calls are proposed, which run, and how they end."""

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from proctor.policies import Event, Monitor, Policy, Report, Violation, compile_policy, merge_policies, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import Decision, ToolCall
from proctor.policies.events.run_context import RunContext


class Drive:
    """One session under a policy; all its events and decisions go through one monitor."""

    def __init__(self, *documents: Any, context: RunContext | None = None) -> None:
        policies: list[Policy] = []
        for document in documents:
            policies += parse_policies({"version": 1, "name": "p", **document})
        self.compiled = compile_policy(merge_policies(policies))
        self.monitor: Monitor = self.compiled.monitor(context)
        self.ids = itertools.count(1)
        self.turn = 0
        self.found: list[Violation] = []

    def see(self, event: Event) -> list[Violation]:
        violations = self.monitor.observe(event)
        self.found += violations
        return violations

    def propose(self, tool: str, *, id: str | None = None, turn: int | None = None, **input: Any) -> Decision:
        """Propose one call, in the next turn unless one is given."""
        self.turn = turn if turn is not None else self.turn + 1
        call = ToolCall(id=id or f"c{next(self.ids)}", name=tool, input=input, turn=self.turn)
        decision = self.monitor.propose(call)
        self.found += decision.violations
        if decision.action in ("deny", "cancel"):
            self.see(ev.ToolCallDenied(tool_call_id=call.id, tool_name=tool, decision=decision.action))
        return decision

    def ask(self, tool: str, **more: Any) -> str:
        """The action for one proposed call. If it may run, it is now in flight."""
        return self.propose(tool, **more).action

    def ok(self, tool: str, out: Any = None, **more: Any) -> None:
        """An allowed call that completes."""
        decision = self.propose(tool, **more)
        assert decision.action in ("allow", "warn"), decision.explain()
        self.see(ev.ToolCallCompleted(tool_call_id=decision.tool_call_id, tool_name=tool, tool_output=out))

    def bad(self, tool: str, **more: Any) -> None:
        """An allowed call that fails."""
        decision = self.propose(tool, **more)
        assert decision.action in ("allow", "warn"), decision.explain()
        self.see(ev.ToolCallFailed(tool_call_id=decision.tool_call_id, tool_name=tool, error="boom"))

    def saw(self, tool: str, *, id: str | None = None, **input: Any) -> list[Violation]:
        """A call that runs without having been proposed."""
        self.turn += 1
        call_id = id or f"c{next(self.ids)}"
        return self.see(ev.ToolCallStarted(tool_call_id=call_id, tool_name=tool, tool_input=input, turn=self.turn))

    def user(self, text: Any) -> None:
        self.see(ev.MessageSent(role="user", content=text))

    def visible(self, *tools: str) -> list[str]:
        return self.monitor.narrow(tools)

    def end(self) -> Report:
        return self.monitor.finish()


DriveFactory: TypeAlias = Callable[..., Drive]


@pytest.fixture
def drive() -> DriveFactory:
    """Start a session: `drive({"rules": [...]})`, with one document for each policy of the stack."""
    return Drive


@pytest.fixture
def ruled() -> DriveFactory:
    """Start a session under these rules; each denies unless it has an action."""

    def start(*rules: dict[str, Any], **more: Any) -> Drive:
        return Drive({"on_violation": "deny", "rules": list(rules)}, **more)

    return start

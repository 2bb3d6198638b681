"""What tests of supervised runs share: a policy that objects to nothing, and stores that first do something else."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from proctor.policies import Deny, Event, Limits, Policy
from proctor.supervisor import MemoryStore

OPEN = Policy(name="open", limits=Limits(max_tool_calls=1000))


def denying(action: Any, **more: Any) -> Policy:
    """A policy that objects to `bash` with an action."""
    return Policy(name="p", tool_rules=(Deny(("bash",)),), on_violation=action, **more)


class Before(MemoryStore):
    """Before it stores an event of a kind, it does something, or raises an error."""

    def __init__(self, kind: type[Event] | tuple[type[Event], ...], first: Callable[[], Awaitable[Any]] | Exception):
        super().__init__()
        self._kind, self._first = kind, first

    async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
        if any(isinstance(event, self._kind) for event in events):
            if isinstance(self._first, Exception):
                raise self._first
            await self._first()
        return await super().append(events, **owned)

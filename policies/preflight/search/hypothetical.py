"""A call of which only the slots are known that it meets, as a machine asks about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...language.facts import Directories
from ...language.naming import CallNames
from ...stream.calls import RunContext, Usage


class Nothing:
    """What a hypothetical call returned."""

    value: Any = None
    text = ""


class HypotheticalCall:
    """A call of which nothing is known: whoever must agree to it does."""

    input: Any = {}
    turn = 1
    approved = True
    answers: Mapping[str, Any] = {}
    keys: dict[str, list[str]] | None = None
    observed = False
    surroundings = Directories()
    names = CallNames(())
    usage = Usage()
    context = RunContext()

    def __init__(self, number: int) -> None:
        self.id = self.name = f"call {number}"

    def loose_fingerprint(self) -> str:
        """Its own: no other call is the same."""
        return self.id

    def user_wrote(self, text: str) -> bool:
        """The user did."""
        return True

    def user_said(self, pattern: str, latest: bool) -> bool:
        """The user did."""
        return True

    def goes_by(self, virtual: Any) -> bool:
        """Its mask says so already."""
        return False

    def outputs(self, ref: Any) -> Any:
        """Its mask says so already."""
        raise NotImplementedError

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
    """A call of which nothing is known but its slots: a person who must agree to it does."""

    input: Any = {}
    turn = 1
    approved = True
    answers: Mapping[str, Any] = {}
    keys: dict[str, list[str]] | None = None
    mapped: dict[Any, tuple[str, ...]] | None = None
    observed = False
    directories = Directories()
    names = CallNames(())
    usage = Usage()
    context = RunContext()

    def __init__(self, number: int) -> None:
        self.id = self.name = f"call {number}"

    def loose_fingerprint(self) -> str:
        """The call's own id: no other call is the same."""
        return self.id

    def user_wrote(self, text: str) -> bool:
        """Always: a user may have written it."""
        return True

    def user_said(self, pattern: str, latest: bool) -> bool:
        """Always: a user may have said it."""
        return True

    def goes_by(self, virtual: Any) -> bool:
        """Never: the mask of the call has its virtual names already."""
        return False

    def outputs(self, ref: Any) -> Any:
        """Never asked: the mask of the call has settled what outputs decide."""
        raise NotImplementedError

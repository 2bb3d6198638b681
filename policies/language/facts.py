"""What a condition may look at besides its document."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ..stream.calls import RunContext
from .operands import OutputRef


class Remembered(Protocol):
    """What was remembered for a reference."""

    @property
    def full(self) -> bool:
        """Whether some values were dropped at the bound."""
        ...

    @property
    def empty(self) -> bool:
        """Whether nothing was remembered."""
        ...

    def has(self, value: Any, loose: bool) -> bool:
        """Whether the value is among them."""
        ...

    def values(self) -> list[Any]: ...


class Directories(NamedTuple):
    """The absolute directories that relative paths and `~` start from, and the shell that reads command lines; None
    where they are not known.
    """

    workspace: str | None = None
    home: str | None = None
    shell: str | None = None


class Facts(Protocol):
    """What a predicate may look at besides its document: the judged call's input, what was remembered, and where
    the run works.
    """

    input: Any

    @property
    def directories(self) -> Directories: ...

    def outputs(self, ref: OutputRef) -> Remembered:
        """What earlier successful calls returned."""
        ...


def directories_of(context: RunContext) -> Directories:
    """Where a run works, as far as its context says."""
    return Directories(context.workspace or None, context.home or None, context.shell or None)


class _Nothing:
    """Nothing was remembered."""

    full = False
    empty = True

    def has(self, value: Any, loose: bool) -> bool:
        return False

    def values(self) -> list[Any]:
        return []


class NoCall:
    """The facts behind a `when`: there is no call yet, and nothing was returned."""

    input: Any = None

    def __init__(self, context: RunContext) -> None:
        self.directories = directories_of(context)

    def outputs(self, ref: OutputRef) -> Remembered:
        """Nothing."""
        return _Nothing()

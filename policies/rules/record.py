"""What every rule shares: its record, and the actions it may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from ..language.conditions import Condition, when_problems
from ..language.record import Base, Name
from ..values import paths
from ..values.complaints import Complaint

RuleAction: TypeAlias = Literal["cancel", "deny", "request_approval", "warn", "halt"]
"""What a rule may ask for; `halt` is another spelling of `cancel`."""


class Rule(Base, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"):
    """What every rule may carry; a family adds its own fields (one file each under `rules/`)."""

    id: Name | None = None
    action: RuleAction | None = None
    unpreventable: Literal["warn", "cancel"] | None = None
    reason: str | None = None
    tell_model: str | None = None
    description: str | None = None
    when: tuple[Condition, ...] = ()
    key: str | None = None

    @property
    def type(self) -> str:
        """The family: the tag it is written with."""
        return str(self.__struct_config__.tag)

    def problems(self) -> Iterator[Complaint]:
        """What is wrong beyond the types; a family that adds checks yields from this too."""
        yield from when_problems(self.when)
        if self.key is not None:
            yield from paths.problems(self.key, ("key",))

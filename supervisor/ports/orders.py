"""Orders and answers from people in any process, for the owners of runs; a store keeps them in order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

from .facts import ApprovalAnswer, ApprovalRequest


def label_text(value: object) -> str:
    """A label's value as a filter or an order names it: a text as it is, anything else as in JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's order about runs.

    Attributes:
        scope: What is named: one `run`, a `session`, a `tenant`, a `label`, or `all`.
        value: The id of the run or session, the tenant's name, a label as `key=value`; empty for all.
        by: Who orders it.
        reason: Why, for the record.
        at: When it was ordered, UTC.
        number: Its number in the store, rising; a cancel concerns runs that were created before it.
    """

    scope: Literal["run", "session", "tenant", "label", "all"]
    value: str = ""
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    number: int = 0

    def covers(self, *, run_id: str, session_id: str, tenant: object = None, labels: object = None) -> bool:
        """Whether a run is in its scope."""
        match self.scope:
            case "run":
                return self.value == run_id
            case "session":
                return self.value == session_id
            case "tenant":
                return self.value == tenant
            case "label":
                key, _, value = self.value.partition("=")
                return isinstance(labels, Mapping) and key in labels and label_text(labels[key]) == value
            case "all":
                return True


class Cancel(_Order, frozen=True, kw_only=True, tag="cancel"):
    """An order that runs end: those of its scope that were created before it, whatever any clock says.

    Attributes:
        approval: The request that the run ends for, if that is the reason.
    """

    approval: ApprovalRequest | None = None


class Block(_Order, frozen=True, kw_only=True, tag="block"):
    """An order that no run of its scope starts until it is lifted."""


class Lift(_Order, frozen=True, kw_only=True, tag="lift"):
    """An order that lifts a block: the one of exactly its scope and value, or every block if its scope is all."""

    def lifts(self, block: Block) -> bool:
        """Whether this lifts that block."""
        return self.scope == "all" or (self.scope, self.value) == (block.scope, block.value)


class AnswerGiven(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """An answer that its approval took, on its way to the owner of the run.

    Attributes:
        run_id: The run that asked.
        approval_id: The approval.
        answer: The answer.
        at: When it was given, UTC.
        number: Its number in the store, rising.
    """

    run_id: str
    approval_id: str
    answer: ApprovalAnswer
    at: datetime | None = None
    number: int = 0


Instruction: TypeAlias = Cancel | Block | Lift | AnswerGiven
"""What people ask of the owners of runs, from any process."""

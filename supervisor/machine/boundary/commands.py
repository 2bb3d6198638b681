"""What a run machine wants done besides storing its record (`machine.take_record`), in the order it is to be done."""

from __future__ import annotations

import msgspec

from proctor.policies.stream.calls import ToolCall
from proctor.policies.stream.events import Event

from ...ports.adapters import ApprovalRequest, GateAnswer
from ...ports.ledger import Draw
from .judge import AsyncCheck
from .result import Outcome


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a run machine wants done."""


class AnswerGate(Command, frozen=True, kw_only=True):
    """Tell the gate; given once for each proposal, after its record is durable.

    `rules` are those that found something about the call, each with its policy: `org/deny-1`.
    """

    key: int
    call: ToolCall
    answer: GateAnswer
    rules: tuple[str, ...] = ()


class RunChecks(Command, frozen=True, kw_only=True):
    """Run the asynchronous checks of a proposal and tell the machine what they answered."""

    key: int
    call: ToolCall
    checks: tuple[AsyncCheck, ...]


class AskApproval(Command, frozen=True, kw_only=True):
    """Show a held call to whoever may answer it."""

    request: ApprovalRequest


class DropApproval(Command, frozen=True, kw_only=True):
    """The held call was decided; no answer is needed any more."""

    approval_id: str


class Reserve(Command, frozen=True, kw_only=True):
    """Draw on shared budgets, and tell the machine what the store answered."""

    draws: tuple[Draw, ...]


class Settle(Command, frozen=True, kw_only=True):
    """The run draws on no budget any more: it has `used` this much of each thing that budgets count."""

    used: dict[str, float]


class CancelAdapter(Command, frozen=True, kw_only=True):
    """Send the provider down the cancel ladder; given at most once."""

    reason: str


class HurryRecord(Command, frozen=True, kw_only=True):
    """The run is to end: a store that does not answer in time has failed."""


class RetryRecord(Command, frozen=True, kw_only=True):
    """The run is over and the store failed: store once more what it lacks, `end` last, as one unit.

    Where a record is refused, store each by itself but the end, and say so: the machine says what the end is
    then, and asks again.
    """

    end: Event


class ArmDeadline(Command, frozen=True, kw_only=True):
    """Tick the machine at this moment; None disarms."""

    at_ms: int | None


class Finish(Command, frozen=True, kw_only=True):
    """The run is over and its terminal event stored, as far as the store allows; given once, last."""

    outcome: Outcome

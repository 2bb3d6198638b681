"""The models of rules: for orders of calls, and for what must be called by the end."""

from __future__ import annotations

from typing import Any

from ...rules.after import After, Eventually
from ...rules.before import Before, ImmediatelyBefore
from ...rules.count import Count, MaxCalls
from ...rules.never_after import ForbidsAfter, NeverAfter
from ...rules.precondition import Precondition
from ...rules.require import Require
from ...rules.sequence import ForbiddenSequence, Sequence
from .order_models import (
    AtLeastModel,
    AtMostModel,
    DeadlineModel,
    EarlierModel,
    InOrderModel,
    ModelState,
    NeedsModel,
    NeverAfterModel,
    NotInOrderModel,
    OrderModel,
    RightBeforeModel,
)

MOST = 20
"""The largest count a model keeps; a rule that allows more is left out, one that wants more wants so many."""


def order_model(record: Any) -> OrderModel | None:
    """The model of a rule about order; None for others. With a `key` only what holds whatever its value."""
    match record:
        case Before() | ImmediatelyBefore() if isinstance(record, Before) or record.key is not None:
            return EarlierModel(
                record.first, record.then, on_start=getattr(record, "first_must", "started") == "started"
            )
        case ImmediatelyBefore():
            return RightBeforeModel(record)
        case Precondition():
            return NeedsModel(record)
    return None if getattr(record, "key", None) is not None else _unkeyed(record)


def _unkeyed(record: Any) -> OrderModel | None:
    match record:
        case NeverAfter():
            return NeverAfterModel(record.trigger, record.forbidden, on_failure=True)
        case ForbidsAfter():
            return NeverAfterModel(record.tool, tuple(record.tools), on_failure=False)
        case Sequence():
            return InOrderModel(record)
        case ForbiddenSequence():
            return NotInOrderModel(record)
        case After() if record.within <= MOST:
            return DeadlineModel(record.then, record.trigger, record.within, 0)
        case Eventually() if record.within <= MOST:
            return DeadlineModel(record.tool, None, 0, record.within)
        case MaxCalls() if record.max <= MOST:
            return AtMostModel(record.tool, record.max, counts_failed=True)
        case Count() if record.within_turns is None:
            most = record.exact if record.exact is not None else record.max
            if most is not None and most <= MOST:
                return AtMostModel(record.tool, most, counts_failed=record.of != "completed")
    return None


def demand_model(record: Any) -> OrderModel | None:
    """The model of what a rule wants called by the end; None for one that wants nothing."""
    match record:
        case Require() | Eventually() if record.key is None:
            return AtLeastModel(record.tool, 1, counts_failed=True)
        case Count() if record.key is None and record.of != "attempted":
            least = (record.min if record.exact is None else record.exact) or 0
            return (
                AtLeastModel(record.tool, min(least, MOST), counts_failed=record.of != "completed") if least else None
            )
    return None


def may_end(model: object, state: ModelState) -> bool:
    """Whether the run may end in this state: an answer that is owed, or a sequence that was begun, has come."""
    match model:
        case AtLeastModel():
            return bool(state >= model.least)
        case DeadlineModel():
            return bool(state == 0)
        case InOrderModel():
            return state in (0, len(model.slots))
    return True


def forgives(model: OrderModel) -> bool:
    """Whether a call that fails may be followed by more than one that succeeds."""
    if isinstance(model, NeverAfterModel):
        return not model.on_failure
    return isinstance(model, AtMostModel) and not model.counts_failed

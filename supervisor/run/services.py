"""What the runs of a supervisor share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proctor.policies.stream.events import Event

from ..machine.events.messages import BOUNDS, MessageBounds
from ..ports.adapters import Approver, Store
from ..redaction import Redactor
from .clock import Clock
from .timers import RightOfWay, Timers


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """What is around a run: where it is recorded, what time it is, who gets its events and who approves. `answerable`
    is false where nobody can answer a request for approval.
    """

    store: Store
    clock: Clock
    timers: Timers
    way: RightOfWay
    publish: Callable[[list[Event]], None]
    approver: Approver | None
    answerable: bool = True
    redactor: Redactor
    messages: MessageBounds = BOUNDS
    log: Any

"""What people ordered and answered: numbered without a gap, and what blocks starts follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from proctor.supervisor.ports.orders import AnswerGiven, Block, Instruction, Lift
from proctor.supervisor.store import chain

from .heads import OrdersHead
from .verifying import Verifier

_ROOT = sha256(b"proctor orders").digest()
_NUMBER_BYTES = 8
_decode = msgspec.json.Decoder(Instruction).decode


def answers_in(orders: Iterable[tuple[int, bytes]]) -> dict[str, AnswerGiven]:
    """The answers that approvals took as orders, by approval."""
    found: dict[str, AnswerGiven] = {}
    for _number, data in orders:
        try:
            order = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(order, AnswerGiven):
            found.setdefault(order.approval_id, order)
    return found


class Orders:
    """Takes the orders of a store in their order; `anchor` is where they ended when heads were kept.

    A store keeps no digests of them: who changes one can be found by an anchor only.
    """

    def __init__(self, verifier: Verifier, anchor: OrdersHead | msgspec.UnsetType = msgspec.UNSET) -> None:
        self._verifier = verifier
        self._anchor = OrdersHead(number=0, digest="") if anchor is msgspec.UNSET else anchor
        self._digest = _ROOT
        self._last = 0
        self._blocks: dict[int, Block] = {}

    @property
    def head(self) -> OrdersHead:
        """Where they end now."""
        return OrdersHead(number=self._last, digest=self._digest.hex())

    def check(self, orders: Iterable[tuple[int, bytes]], given: int, blocks: Iterable[int]) -> None:
        """Find what is not there or not as it was: `given` is how many numbers were, `blocks` what the store keeps
        starts blocked by.
        """
        for number, data in orders:
            self._take(number, bytes(data))
        self._missing(self._last + 1, max(given, self._anchor.number))
        for number in sorted(self._blocks.keys() ^ set(blocks)):
            what = (
                "was not lifted, and blocks" if number in self._blocks else "blocks starts in the list, and no order"
            )
            how = "nothing in the list" if number in self._blocks else "says so"
            self._verifier.find("integrity", "list_changed", f"order {number} {what} {how}")

    def _take(self, number: int, data: bytes) -> None:
        self._missing(self._last + 1, number - 1)
        self._last = number
        self._digest = chain.link(self._digest, number.to_bytes(_NUMBER_BYTES, "big") + data)
        if number == self._anchor.number and self._digest.hex() != self._anchor.digest:
            message = f"the orders up to {number} are not those that were anchored"
            self._verifier.find("integrity", "orders_rewritten", message)
        try:
            order = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._verifier.find("integrity", "order_changed", f"order {number} cannot be read")
            return
        if isinstance(order, Block):
            self._blocks[number] = order
        elif isinstance(order, Lift):
            self._blocks = {at: block for at, block in self._blocks.items() if not order.lifts(block)}

    def _missing(self, first: int, last: int) -> None:
        if first <= last:
            which = f"order {first} is" if first == last else f"orders {first} to {last} are"
            self._verifier.find("completeness", "order_missing", f"{which} missing")

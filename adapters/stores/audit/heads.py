"""Where each session's record ends, and the orders: kept outside the store, so that it can be held to them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from proctor.supervisor.errors import UsageError


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The last record of a session and its digest, in hex."""

    session_id: str
    seq: int
    digest: str


class OrdersHead(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the last order, and the digest over all orders up to it, in hex."""

    number: int
    digest: str


class Heads(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="proctor_heads"):
    """All sessions of a store at one moment.

    Attributes:
        store_id: the id the store was made with.
        records: how many records were stored up to then.
        made_at: when, UTC.
        sessions: in the order of their ids.
        orders: where what people ordered and answered ends; not in heads from before it was counted.
        signature: Ed25519 over everything else, in hex; empty where it is not signed.
    """

    store_id: str
    records: int
    made_at: str
    sessions: tuple[Head, ...]
    orders: OrdersHead | msgspec.UnsetType = msgspec.UNSET
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """What a signature is over."""
        return encode(msgspec.structs.replace(self, signature=""))


encode = msgspec.json.Encoder(order="deterministic").encode


def read_heads(path: Path) -> Heads:
    """Heads that were kept. Raises UsageError for a file that holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Heads)
    except msgspec.MsgspecError as error:
        raise UsageError(f"`{path}` has no heads as `proctor audit head` writes them: {error}") from None

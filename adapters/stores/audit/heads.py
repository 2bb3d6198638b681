"""Where each session's record ends, and the orders: kept outside the store, so that it can be held to them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from proctor.supervisor.errors import UsageError, install_of

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


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
        """The bytes that a signature covers."""
        return encode(msgspec.structs.replace(self, signature=""))


encode = msgspec.json.Encoder(order="deterministic").encode


def read_heads(path: Path) -> Heads:
    """Heads that were kept. Raises UsageError for a file that holds none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Heads)
    except msgspec.MsgspecError as error:
        raise UsageError(f"`{path}` has no heads as `proctor audit head` writes them: {error}") from None


def signed(heads: Heads, key_file: Path) -> Heads:
    """The heads with a signature. Raises UsageError for a file that holds no Ed25519 private key, and without the
    extra.
    """
    _check_installed()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _loaded(lambda pem: load_pem_private_key(pem, None), key_file, Ed25519PrivateKey, "private")
    return msgspec.structs.replace(heads, signature=key.sign(heads.signed_bytes()).hex())


def check_signature(heads: Heads, key_file: Path) -> None:
    """Raises UsageError unless the heads were signed with the private half of this key, and without the extra."""
    _check_installed()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _loaded(load_pem_public_key, key_file, Ed25519PublicKey, "public")
    try:
        key.verify(bytes.fromhex(heads.signature), heads.signed_bytes())
    except (InvalidSignature, ValueError):
        raise UsageError(f"the heads are not signed with the key of `{key_file}`; do not trust them") from None


def _check_installed() -> None:
    if find_spec("cryptography") is None:
        raise UsageError(f"signatures need `cryptography`: {install_of('audit')}")


def _loaded(load: Any, key_file: Path, kind: type, half: str) -> Any:
    try:
        key = load(key_file.read_bytes())
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, kind):
        raise UsageError(
            f"`{key_file}` has no Ed25519 {half} key in PEM form; `openssl genpkey -algorithm ed25519` makes one"
        )
    return key

"""Heads signed with an Ed25519 key, and the signature checked; `cryptography` is the extra `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from proctor.supervisor.errors import UsageError

from .heads import Heads


def signed(heads: Heads, key_file: Path) -> Heads:
    """The heads with a signature. Raises UsageError for a file that holds no Ed25519 private key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _loaded(lambda pem: load_pem_private_key(pem, None), key_file, Ed25519PrivateKey, "private")
    return msgspec.structs.replace(heads, signature=key.sign(heads.signed_bytes()).hex())


def check_signature(heads: Heads, key_file: Path) -> None:
    """Raises UsageError unless the heads were signed with the private half of this key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _loaded(load_pem_public_key, key_file, Ed25519PublicKey, "public")
    try:
        key.verify(bytes.fromhex(heads.signature), heads.signed_bytes())
    except (InvalidSignature, ValueError):
        raise UsageError(f"the heads are not signed with the key of `{key_file}`; do not trust them") from None


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

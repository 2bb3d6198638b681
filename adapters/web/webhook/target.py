"""Where events are sent, with what secret, which of them, and how patiently."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from proctor.policies.stream.events import EVENT_TYPES
from proctor.supervisor.errors import UsageError

DEFAULT_TYPES = ("tool_approval_requested", "policy_violation", "run_completed", "run_failed", "run_cancelled")
SHORTEST = 16
_PREFIX = "whsec_"
"""Before a secret in base64, as Standard Webhooks writes it."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver. Times are in seconds.

    A try takes at most `timeout_s`; the waits between tries double from `first_wait_s` to `longest_wait_s`. What
    the receiver refuses (4xx) is tried `refusals` times, anything else until the event is `oldest_s` old.
    """

    url: str
    key: bytes
    types: frozenset[str] = frozenset(DEFAULT_TYPES)
    timeout_s: float = 10
    first_wait_s: float = 1
    longest_wait_s: float = 60
    refusals: int = 5
    oldest_s: float = 24 * 3600


def target_of(url: str, secret: str | None, types: Collection[str] = ()) -> Target:
    """A receiver, from what people write. Raises UsageError if it makes no sense or would send secrets in clear
    text.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise UsageError(f"`{url}` is not an address for a webhook; use https://HOST/PATH")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise UsageError(f"`{url}` would carry what agents do in clear text; use https://, or an address on loopback")
    unknown = sorted(set(types) - set(EVENT_TYPES))
    if unknown:
        raise UsageError(f"there is no event type `{unknown[0]}`; docs: Events")
    return Target(url=url, key=_key(secret), types=frozenset(types or DEFAULT_TYPES))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _key(secret: str | None) -> bytes:
    if not secret:
        raise UsageError("a webhook needs a secret that its receiver knows, in PROCTOR_WEBHOOK_SECRET")
    if len(secret) < SHORTEST:
        raise UsageError(f"the webhook's secret must have at least {SHORTEST} characters")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise UsageError("the webhook's secret begins with `whsec_`, but what follows is not base64") from None

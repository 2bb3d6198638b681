"""Wrong tokens are counted: an address that tries many gets no answers for a while."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil
from time import monotonic

from proctor.supervisor.errors import UsageError

from .identities import AccessTokens, Identity

AT_MOST = 20
"""So many wrong tokens from one address within the window."""
WINDOW_S = 60.0
_ADDRESSES = 4096
"""So many addresses are remembered, those that were seen last."""


class TooManyTriesError(UsageError):
    """Requests from this address are ignored for `wait_s` seconds."""

    code = "too_many_tries"

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"too many wrong tokens came from your address; try again in {wait_s} s")
        self.wait_s = wait_s


class Tries:
    """Finds the holder of a token, and counts invalid tokens by the address they come from.

    A token that was once valid from an address stays valid from there: somebody behind the same proxy cannot
    lock its holder out.

    Args:
        tokens: the valid ones.
        now: the seconds of a monotonic clock.
    """

    def __init__(self, tokens: AccessTokens, now: Callable[[], float] = monotonic) -> None:
        self._tokens = tokens
        self._now = now
        self._seen: OrderedDict[str, _Address] = OrderedDict()

    def holder(self, token: str, client: str) -> Identity | None:
        """The holder of a token; None if it is nobody's. After too many invalid tokens from this address, raises
        TooManyTriesError for any token that was not valid from it before.
        """
        seen = self._of(_network(client))
        now = self._now()
        while seen.wrong and seen.wrong[0] <= now - WINDOW_S:
            seen.wrong.popleft()
        limited = len(seen.wrong) >= AT_MOST
        found = self._tokens.holder(token)
        if found is not None and (not limited or found.name in seen.holders):
            seen.holders.add(found.name)
            return found
        if limited:
            raise TooManyTriesError(ceil(seen.wrong[0] + WINDOW_S - now))
        seen.wrong.append(now)
        return None

    def _of(self, network: str) -> _Address:
        seen = self._seen.setdefault(network, _Address())
        self._seen.move_to_end(network)
        if len(self._seen) > _ADDRESSES:
            self._seen.popitem(last=False)
        return seen


class _Address:
    """When wrong tokens came from it, and who was let in."""

    def __init__(self) -> None:
        self.wrong: deque[float] = deque()
        self.holders: set[str] = set()


def _network(client: str) -> str:
    """What one person has: an IPv4 address, or the 64 bits of an IPv6 network."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.exploded[:19]

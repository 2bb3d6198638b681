"""Wrong tokens are counted: an address that tries many is told to wait. A valid token is never told so."""

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

    A valid token is valid from every address at any time: nobody can lock its holder out of the kill switch by
    trying wrong ones beside them. Tokens are too long to be guessed (`identities.SHORTEST`); the count keeps a
    guesser, or a client with an old token, from filling the log.

    Args:
        tokens: the valid ones.
        now: the seconds of a monotonic clock.
    """

    def __init__(self, tokens: AccessTokens, now: Callable[[], float] = monotonic) -> None:
        self._tokens = tokens
        self._now = now
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def holder(self, token: str, client: str) -> Identity | None:
        """The holder of a token; None if it is nobody's. Raises TooManyTriesError for the next invalid token after
        too many from this address.
        """
        found = self._tokens.holder(token)
        if found is not None:
            return found
        wrong = self._wrong_from(_network(client))
        now = self._now()
        while wrong and wrong[0] <= now - WINDOW_S:
            wrong.popleft()
        if len(wrong) >= AT_MOST:
            raise TooManyTriesError(ceil(wrong[0] + WINDOW_S - now))
        wrong.append(now)
        return None

    def _wrong_from(self, network: str) -> deque[float]:
        """When invalid tokens came from a network."""
        wrong = self._wrong.setdefault(network, deque())
        self._wrong.move_to_end(network)
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        return wrong


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

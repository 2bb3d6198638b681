"""Whether a client is tried: it is skipped for a while after it failed several times in a row.

Pure: the time and the result of an attempt are arguments. It is our own because no library has a breaker for
whole streams, on asyncio and trio alike, in which a cancel is neither a success nor a failure.
"""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one client.

    Attributes:
        failures: How often it failed in a row.
        closed_until: Until when it is skipped, in seconds of the breaker's clock; None if it is not.
        on_trial: An attempt is under way that decides whether it is tried again.
    """

    failures: int = 0
    closed_until: float | None = None
    on_trial: bool = False


class Breaker:
    """One client's health over all runs of an adapter.

    Args:
        failures: after how many failures in a row it is skipped.
        rest_s: for how many seconds; then one attempt decides.
    """

    def __init__(self, failures: int, rest_s: float) -> None:
        self._most = failures
        self._rest_s = rest_s
        self.health = Health()

    def may_try(self, now: float) -> bool:
        """Whether an attempt may begin."""
        health = self.health
        return health.closed_until is None or (now >= health.closed_until and not health.on_trial)

    def begin(self, now: float) -> bool:
        """Begin an attempt; returns whether it is the one on trial, to be passed to `end`."""
        trial = self.health.closed_until is not None
        if trial:
            self.health = msgspec.structs.replace(self.health, on_trial=True)
        return trial

    def end(self, now: float, *, ok: bool | None, trial: bool = False) -> None:
        """End an attempt: well, badly, or (None) by a cancel, which says nothing about the client."""
        if ok:
            self.health = Health()
        elif ok is None:
            if trial:
                self.health = msgspec.structs.replace(self.health, on_trial=False)
        else:
            failures = self.health.failures + 1
            rests = trial or failures >= self._most or self.health.closed_until is not None
            until = now + self._rest_s if rests else None
            on_trial = self.health.on_trial and not trial
            self.health = Health(failures=failures, closed_until=until, on_trial=on_trial)

"""Budgets that runs share, in a store in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from proctor.policies.limits import BudgetClaim

from ..ports.budget_ledger import DIGITS, PARTS_KEPT, BudgetInfo, Draw, Drawn, grown, set_aside, window_at


class _Share(NamedTuple):
    """One run's use and reservation, and its owner's epoch."""

    used: float
    held: float
    epoch: int


class _Counter:
    """One budget of one key: what is used by the parts of its window, and what each run has used and holds."""

    def __init__(self, claim: BudgetClaim) -> None:
        self.claim = claim
        self.parts: dict[int, float] = {}
        self.shares: dict[str, _Share] = {}

    def used(self, since: int) -> float:
        """The amount used since a moment."""
        return round(sum(amount for part, amount in self.parts.items() if part >= since), DIGITS)

    def oldest(self, since: int) -> int | None:
        """The first part in which something was used."""
        return min((part for part, amount in self.parts.items() if part >= since and amount), default=None)

    def add(self, part: int, amount: float) -> None:
        """More is used."""
        if amount:
            self.parts[part] = round(self.parts.get(part, 0.0) + amount, DIGITS)
            if len(self.parts) > PARTS_KEPT:
                self.parts = {kept: self.parts[kept] for kept in heapq.nlargest(PARTS_KEPT, self.parts)}


class Ledger:
    """Every budget of a store.

    Args:
        now_ms: the store's time.
        holds: whether what a run holds under an epoch counts.
    """

    def __init__(self, now_ms: Callable[[], int], holds: Callable[[str, int], bool]) -> None:
        self._now_ms = now_ms
        self._holds = holds
        self._counters: dict[tuple[str, ...], _Counter] = {}

    def reserve(self, run_id: str, draws: Sequence[Draw], epoch: int) -> list[Drawn]:
        """Answer each draw of a run; see `Store.reserve`."""
        now_ms = self._now_ms()
        return [self._draw(run_id, draw, now_ms, epoch=epoch) for draw in draws]

    def settle(self, run_id: str, used: Mapping[str, float], epoch: int) -> list[Drawn]:
        """A run draws no more; see `Store.settle`."""
        now_ms, found = self._now_ms(), []
        for counter in self._counters.values():
            if run_id in counter.shares:
                draw = Draw(claim=counter.claim, used=used.get(counter.claim.counts, 0.0))
                found.append(self._draw(run_id, draw, now_ms, epoch=epoch))
                del counter.shares[run_id]
        return found

    def budgets(self) -> Iterator[BudgetInfo]:
        """Every budget that was drawn on."""
        now_ms = self._now_ms()
        for _, counter in sorted(self._counters.items()):
            claim = counter.claim
            window = window_at(claim.window, now_ms)
            held = [share.held for run_id, share in counter.shares.items() if self._holds(run_id, share.epoch)]
            yield BudgetInfo(
                budget=claim.budget,
                key=claim.key,
                counts=claim.counts,
                window=claim.window,
                max=claim.max,
                used=counter.used(window.since),
                reserved=round(sum(held), DIGITS),
                runs=len(held),
                resets_at=window.resets_at(counter.oldest(window.since)),
            )

    def _draw(self, run_id: str, draw: Draw, now_ms: int, *, epoch: int) -> Drawn:
        claim = draw.claim
        counter = self._counters.setdefault((claim.budget, claim.key, claim.counts, claim.window), _Counter(claim))
        counter.claim = claim
        window = window_at(claim.window, now_ms)
        own = share.used if (share := counter.shares.get(run_id)) is not None else 0.0
        before = counter.used(window.since)
        counter.add(window.part, grown(draw.used, own))
        used = counter.used(window.since)
        counter.shares.pop(run_id, None)
        others = self._reserved(counter)
        held = set_aside(draw, used=used, others=others)
        counter.shares[run_id] = _Share(max(own, draw.used), held or 0.0, epoch)
        return Drawn(
            claim=claim,
            granted=held is not None,
            held=held or 0.0,
            before=before,
            used=used,
            reserved=self._reserved(counter),
            resets_at=window.resets_at(counter.oldest(window.since)),
        )

    def _reserved(self, counter: _Counter) -> float:
        held = [share.held for id, share in counter.shares.items() if share.held and self._holds(id, share.epoch)]
        return round(sum(held), DIGITS)

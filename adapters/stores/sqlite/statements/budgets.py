"""Budgets that runs share, as rows: read, judged and written within the transaction that asks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from proctor.policies.budget import BudgetClaim
from proctor.supervisor.ports.facts import GOING_ON
from proctor.supervisor.ports.ledger import BudgetInfo, Draw, Drawn
from proctor.supervisor.ports.windows import DIGITS, PARTS_KEPT, Window, grown, set_aside, window_at
from proctor.supervisor.store import refusals

from .owners import OWNER_COLUMNS, find_owner, owner_of
from .recording import Recorder

_HELD = f"""SELECT sum(held), count(*), sum(iif(budget_shares.run_id = :run, held, 0)), {OWNER_COLUMNS}
    FROM budget_shares JOIN runs ON runs.run_id = budget_shares.run_id AND runs.epoch = budget_shares.epoch
    JOIN owners ON owners.epoch = runs.epoch WHERE counter = :counter
        AND runs.status IN ('created', 'running') GROUP BY runs.epoch"""
_CLAIM = "budget, key, counts, window, max"
_USED = "SELECT coalesce(sum(used), 0), min(part) FROM budget_parts WHERE counter = ? AND part >= ? AND used > 0"
_COUNTER = "SELECT counter FROM budgets WHERE budget = ? AND key = ? AND counts = ? AND window = ?"


class _Held(NamedTuple):
    """What runs that go on have set aside, under the owner that is theirs and is there; `mine` is one run's."""

    all: float
    mine: float
    runs: int


def reserve(recorder: Recorder, run_id: str, draws: Sequence[Draw], epoch: int, now_ms: int) -> list[Drawn]:
    """Answer each draw of a run; see `Store.reserve`."""
    _check(recorder, run_id, epoch)
    return [_draw(recorder, (run_id, epoch), draw, now_ms, _counter(recorder, draw.claim)) for draw in draws]


def settle(recorder: Recorder, run_id: str, used: Mapping[str, float], epoch: int, now_ms: int) -> list[Drawn]:
    """A run draws no more; see `Store.settle`."""
    _check(recorder, run_id, epoch)
    sql = f"SELECT counter, {_CLAIM} FROM budgets JOIN budget_shares USING (counter) WHERE run_id = ?"
    found = []
    for counter, *row in recorder.execute(sql, (run_id,)).fetchall():
        claim = _claim(row)
        draw = Draw(claim=claim, used=used.get(claim.counts, 0.0))
        found.append(_draw(recorder, (run_id, epoch), draw, now_ms, counter))
        recorder.execute("DELETE FROM budget_shares WHERE counter = ? AND run_id = ?", (counter, run_id))
    return found


def listed(connection: sqlite3.Connection, now_ms: int) -> list[BudgetInfo]:
    """Every budget that was drawn on."""
    sql = f"SELECT counter, {_CLAIM} FROM budgets ORDER BY budget, key, counts, window"
    return [_shown(connection, counter, _claim(row), now_ms) for counter, *row in connection.execute(sql).fetchall()]


def _shown(connection: sqlite3.Connection, counter: int, claim: BudgetClaim, now_ms: int) -> BudgetInfo:
    window = window_at(claim.window, now_ms)
    used, resets = _used(connection, counter, window)
    held = _held(connection, counter, "")
    return BudgetInfo(
        budget=claim.budget,
        key=claim.key,
        counts=claim.counts,
        window=claim.window,
        max=claim.max,
        used=used,
        reserved=held.all,
        runs=held.runs,
        resets_at=window.resets_at(resets),
    )


def _check(recorder: Recorder, run_id: str, epoch: int) -> None:
    row = recorder.execute("SELECT status, epoch FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise refusals.no_run(run_id)
    if row[0] not in GOING_ON:
        raise refusals.run_over(run_id, row[0])
    if row[1] != epoch:
        raise refusals.fenced(run_id, recorder.ask(lambda connection: find_owner(connection, row[1])))


def _counter(recorder: Recorder, claim: BudgetClaim) -> int:
    """The number of a budget's line, which says how much the last draw took it to be."""
    key = (claim.budget, claim.key, claim.counts, claim.window)
    sql = """INSERT INTO budgets (budget, key, counts, window, max) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT (budget, key, counts, window) DO UPDATE SET max = excluded.max"""
    recorder.execute(sql, (*key, claim.max))
    return int(recorder.execute(_COUNTER, key).fetchone()[0])


def _draw(recorder: Recorder, whose: tuple[str, int], draw: Draw, now_ms: int, counter: int) -> Drawn:
    run_id, epoch = whose
    window = window_at(draw.claim.window, now_ms)
    connection = recorder.ask(lambda connection: connection)
    before, _ = _used(connection, counter, window)
    sql = "SELECT used FROM budget_shares WHERE counter = ? AND run_id = ?"
    row = recorder.execute(sql, (counter, run_id)).fetchone()
    known = row[0] if row else 0.0
    _add(recorder, counter, window.part, grown(draw.used, known))
    used, oldest = _used(connection, counter, window)
    was = _held(connection, counter, run_id)
    held = set_aside(draw, used=used, others=was.all - was.mine)
    sql = "INSERT OR REPLACE INTO budget_shares (counter, run_id, epoch, used, held) VALUES (?, ?, ?, ?, ?)"
    recorder.execute(sql, (counter, run_id, epoch, max(known, draw.used), held or 0.0))
    return Drawn(
        claim=draw.claim,
        granted=held is not None,
        held=held or 0.0,
        before=before,
        used=used,
        reserved=_held(connection, counter, run_id).all,
        resets_at=window.resets_at(oldest),
    )


def _add(recorder: Recorder, counter: int, part: int, amount: float) -> None:
    if amount:
        sql = "INSERT INTO budget_parts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET used = used + excluded.used"
        recorder.execute(sql, (counter, part, amount))
        sql = """DELETE FROM budget_parts WHERE counter = :counter AND part <
            (SELECT part FROM budget_parts WHERE counter = :counter ORDER BY part DESC LIMIT 1 OFFSET :kept)"""
        recorder.execute(sql, {"counter": counter, "kept": PARTS_KEPT - 1})


def _used(connection: sqlite3.Connection, counter: int, window: Window) -> tuple[float, int | None]:
    used, oldest = connection.execute(_USED, (counter, window.since)).fetchone()
    return round(used, DIGITS), oldest


def _held(connection: sqlite3.Connection, counter: int, run_id: str) -> _Held:
    all, mine, runs = 0.0, 0.0, 0
    for held, count, own, *row in connection.execute(_HELD, {"counter": counter, "run": run_id}).fetchall():
        owner = owner_of(tuple(row))
        if owner is not None and not owner.gone:
            all, mine, runs = all + held, mine + own, runs + count
    return _Held(round(all, DIGITS), round(mine, DIGITS), runs)


def _claim(row: Iterable[object]) -> BudgetClaim:
    budget, key, counts, window, most = row
    return BudgetClaim(budget=str(budget), key=str(key), counts=str(counts), window=str(window), max=float(str(most)))

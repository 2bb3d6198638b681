"""Budgets that runs share, as rows: read, judged and written within one transaction, one that draws at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from proctor.policies.budget import BudgetClaim
from proctor.supervisor.ports.facts import GOING_ON
from proctor.supervisor.ports.ledger import BudgetInfo, Draw, Drawn
from proctor.supervisor.ports.windows import DIGITS, PARTS_KEPT, Window, grown, set_aside, window_at
from proctor.supervisor.store import refusals

from ..connection.connecting import Connection
from .owners import OWNER_COLUMNS, find_owner, owner_of
from .recording import Recorder

_TAKE_TURN = "SELECT pg_advisory_xact_lock(1886548853, 'budgets'::regclass::oid::int4)"
"""Whoever draws has all budgets of the store until it has committed: one order, and nobody waits in a circle."""
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_CLAIM = "budget, key, counts, period, most"
_HELD = f"""SELECT sum(held), count(*), sum(CASE WHEN budget_shares.run_id = %s THEN held ELSE 0 END), {OWNER_COLUMNS}
    FROM budget_shares JOIN runs ON runs.run_id = budget_shares.run_id AND runs.epoch = budget_shares.epoch
    JOIN owners ON owners.epoch = runs.epoch WHERE counter = %s
        AND runs.status IN ('created', 'running') GROUP BY owners.epoch"""
_USED = "SELECT coalesce(sum(used), 0), min(part) FROM budget_parts WHERE counter = %s AND part >= %s AND used > 0"


class _Held(NamedTuple):
    """What runs that go on have set aside, under the owner that is theirs and is there; `mine` is one run's."""

    all: float
    mine: float
    runs: int


def reserve(recorder: Recorder, run_id: str, draws: Sequence[Draw], epoch: int) -> list[Drawn]:
    """Answer each draw of a run; see `Store.reserve`."""
    now_ms = _begin(recorder, run_id, epoch)
    return [_draw(recorder, (run_id, epoch), draw, now_ms, _counter(recorder, draw.claim)) for draw in draws]


def settle(recorder: Recorder, run_id: str, used: Mapping[str, float], epoch: int) -> list[Drawn]:
    """A run draws no more; see `Store.settle`."""
    now_ms = _begin(recorder, run_id, epoch)
    sql = f"SELECT counter, {_CLAIM} FROM budgets JOIN budget_shares USING (counter) WHERE run_id = %s"
    found = []
    for counter, *row in recorder.ask(sql, (run_id,)).fetchall():
        claim = _claim(row)
        draw = Draw(claim=claim, used=used.get(claim.counts, 0.0))
        found.append(_draw(recorder, (run_id, epoch), draw, now_ms, counter))
        recorder.change("DELETE FROM budget_shares WHERE counter = %s AND run_id = %s", (counter, run_id))
    return found


def listed(connection: Connection) -> list[BudgetInfo]:
    """Every budget that was drawn on."""
    sql = f"SELECT counter, {_CLAIM} FROM budgets ORDER BY budget, key, counts, period"
    rows = connection.execute(sql, binary=True).fetchall()
    now_ms = _now_ms(connection) if rows else 0
    return [_shown(connection, counter, _claim(row), now_ms) for counter, *row in rows]


def _shown(connection: Connection, counter: int, claim: BudgetClaim, now_ms: int) -> BudgetInfo:
    window = window_at(claim.window, now_ms)
    used, oldest = _used(connection, counter, window)
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
        resets_at=window.resets_at(oldest),
    )


def _begin(recorder: Recorder, run_id: str, epoch: int) -> int:
    """Begin, where the run may draw; the server's time then, in ms."""
    recorder.begin()
    recorder.change(_TAKE_TURN)
    row = recorder.ask("SELECT status, epoch FROM runs WHERE run_id = %s FOR NO KEY UPDATE", (run_id,)).fetchone()
    if row is None:
        raise refusals.no_run(run_id)
    if row[0] not in GOING_ON:
        raise refusals.run_over(run_id, row[0])
    if row[1] != epoch:
        raise refusals.fenced(run_id, find_owner(recorder.connection, row[1]))
    return _now_ms(recorder.connection)


def _now_ms(connection: Connection) -> int:
    [(now_ms,)] = connection.execute(_NOW, binary=True).fetchall()
    return int(now_ms)


def _counter(recorder: Recorder, claim: BudgetClaim) -> int:
    """The number of a budget's line, which says how much the last draw took it to be."""
    sql = f"""INSERT INTO budgets ({_CLAIM}) VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (budget, key, counts, period) DO UPDATE SET most = excluded.most RETURNING counter"""
    values = (claim.budget, claim.key, claim.counts, claim.window, float(claim.max))
    [(counter,)] = recorder.change(sql, values).fetchall()
    return int(counter)


def _draw(recorder: Recorder, whose: tuple[str, int], draw: Draw, now_ms: int, counter: int) -> Drawn:
    run_id, epoch = whose
    window = window_at(draw.claim.window, now_ms)
    connection = recorder.connection
    before, _ = _used(connection, counter, window)
    sql = "SELECT used FROM budget_shares WHERE counter = %s AND run_id = %s"
    row = recorder.ask(sql, (counter, run_id)).fetchone()
    known = row[0] if row else 0.0
    _add(recorder, counter, window.part, grown(draw.used, known))
    used, oldest = _used(connection, counter, window)
    was = _held(connection, counter, run_id)
    held = set_aside(draw, used=used, others=was.all - was.mine)
    sql = """INSERT INTO budget_shares VALUES (%s, %s, %s, %s, %s) ON CONFLICT (counter, run_id)
        DO UPDATE SET epoch = excluded.epoch, used = excluded.used, held = excluded.held"""
    recorder.change(sql, (counter, run_id, epoch, float(max(known, draw.used)), float(held or 0.0)))
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
        sql = """INSERT INTO budget_parts VALUES (%s, %s, %s)
            ON CONFLICT (counter, part) DO UPDATE SET used = budget_parts.used + excluded.used"""
        recorder.change(sql, (counter, part, amount))
        sql = """DELETE FROM budget_parts WHERE counter = %(counter)s AND part <
            (SELECT part FROM budget_parts WHERE counter = %(counter)s ORDER BY part DESC LIMIT 1 OFFSET %(kept)s)"""
        recorder.change(sql, {"counter": counter, "kept": PARTS_KEPT - 1})


def _used(connection: Connection, counter: int, window: Window) -> tuple[float, int | None]:
    [(used, oldest)] = connection.execute(_USED, (counter, window.since), binary=True).fetchall()
    return round(used, DIGITS), oldest


def _held(connection: Connection, counter: int, run_id: str) -> _Held:
    all, mine, runs = 0.0, 0.0, 0
    for held, count, own, *row in connection.execute(_HELD, (run_id, counter), binary=True).fetchall():
        owner = owner_of(tuple(row))
        if owner is not None and not owner.gone:
            all, mine, runs = all + held, mine + own, runs + count
    return _Held(round(all, DIGITS), round(mine, DIGITS), runs)


def _claim(row: Iterable[object]) -> BudgetClaim:
    budget, key, counts, window, most = row
    return BudgetClaim(budget=str(budget), key=str(key), counts=str(counts), window=str(window), max=float(str(most)))

"""Budgets that runs share, as rows: read, judged and written within one transaction, one that draws at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from proctor.policies.limits import BudgetClaim
from proctor.supervisor.ports.budget_ledger import (
    DIGITS,
    PARTS_KEPT,
    BudgetInfo,
    Draw,
    Drawn,
    Window,
    grown,
    set_aside,
    window_at,
)
from proctor.supervisor.ports.stored_types import GOING_ON
from proctor.supervisor.store import invariants

from .recording import Transaction
from .transactions import (
    BUDGETS,
    Row,
    Tables,
    budget_row,
    find_owner,
    owner_columns,
    owner_of,
    part_row,
    share_row,
    summed,
)

Clock: TypeAlias = Callable[[Tables], int]
"""The time by which windows go, in ms since the epoch."""
_KEY = "budget, key, counts, period"
_CLAIM = f"{_KEY}, most"
_USED = "SELECT coalesce(sum(used), 0), min(part) FROM budget_parts WHERE counter = ? AND part >= ? AND used > 0"
_ADD = """INSERT INTO budget_parts VALUES (?, ?, ?)
    ON CONFLICT (counter, part) DO UPDATE SET used = budget_parts.used + excluded.used"""
_DROP_OLDEST = """DELETE FROM budget_parts WHERE counter = ? AND part <
    (SELECT part FROM budget_parts WHERE counter = ? ORDER BY part DESC LIMIT 1 OFFSET ?) RETURNING part, used"""
_OF_RUN = "FROM budget_shares WHERE counter = ? AND run_id = ?"
_ORPHANS = """SELECT (SELECT count(*) FROM budget_parts WHERE counter NOT IN (SELECT counter FROM budgets))
    + (SELECT count(*) FROM budget_shares WHERE counter NOT IN (SELECT counter FROM budgets))"""
_SEAL = "INSERT INTO seals (name, digest) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET digest = excluded.digest"
_SHARE = """INSERT INTO budget_shares (counter, run_id, epoch, used, held) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (counter, run_id) DO UPDATE SET epoch = excluded.epoch, used = excluded.used, held = excluded.held"""


class _Held(NamedTuple):
    """Amounts reserved by running runs whose owner is gone, until somebody settles; a run that never started holds
    its reservation only while its owner is there. `mine` is one run's.
    """

    all: float
    mine: float
    runs: int


def reserve(recorder: Transaction, run_id: str, draws: Sequence[Draw], epoch: int, now_ms: Clock) -> list[Drawn]:
    """Answer each draw of a run; see `Store.reserve`."""
    now = _begin(recorder, run_id, epoch, now_ms)
    return [_draw(recorder, (run_id, epoch), draw, now, _counter(recorder, draw.claim)) for draw in draws]


def settle(recorder: Transaction, run_id: str, used: Mapping[str, float], epoch: int, now_ms: Clock) -> list[Drawn]:
    """A run draws no more; see `Store.settle`."""
    now = _begin(recorder, run_id, epoch, now_ms)
    found = []
    sql = f"SELECT counter, {_CLAIM} FROM budgets JOIN budget_shares USING (counter) WHERE run_id = ?"
    for counter, *row in recorder.rows(sql, (run_id,)):
        claim = _claim(row)
        draw = Draw(claim=claim, used=used.get(claim.counts, 0.0))
        found.append(_draw(recorder, (run_id, epoch), draw, now, counter))
        gone = recorder.change(f"DELETE {_OF_RUN} RETURNING epoch, used, held", (counter, run_id))
        _seal(recorder, counter, claim, removed=[share_row(_key(claim), run_id, *row) for row in gone])
    return found


def listed(tables: Tables, now_ms: Clock) -> list[BudgetInfo]:
    """Every budget that was drawn on."""
    rows = tables.rows(f"SELECT counter, {_CLAIM} FROM budgets ORDER BY {_KEY}")
    now = now_ms(tables) if rows else 0
    return [_shown(tables, counter, _claim(row), now) for counter, *row in rows]


def _shown(tables: Tables, counter: int, claim: BudgetClaim, now_ms: int) -> BudgetInfo:
    window = window_at(claim.window, now_ms)
    used, oldest = _used(tables, counter, window)
    held = _held(tables, counter, "")
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


def _begin(recorder: Transaction, run_id: str, epoch: int, now_ms: Clock) -> int:
    """Begin, where the run may draw; the time then."""
    recorder.lock_budgets()
    rows = recorder.rows(f"SELECT status, epoch FROM runs WHERE run_id = ?{recorder.dialect.lock}", (run_id,))
    if not rows:
        raise invariants.no_run(run_id)
    [(status, its)] = rows
    if status not in GOING_ON:
        raise invariants.run_over(run_id, status)
    if its != epoch:
        raise invariants.fenced(run_id, find_owner(recorder, its))
    return now_ms(recorder)


def _counter(recorder: Transaction, claim: BudgetClaim) -> int:
    """The number of a budget's line, which says how much the last draw took it to be."""
    named = " AND ".join(f"{name} = ?" for name in _KEY.split(", "))
    before = recorder.rows(f"SELECT most FROM budgets WHERE {named}", _key(claim))
    sql = f"""INSERT INTO budgets ({_CLAIM}) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT ({_KEY}) DO UPDATE SET most = excluded.most RETURNING counter"""
    [(counter,)] = recorder.change(sql, (*_key(claim), float(claim.max)))
    if before != [(float(claim.max),)]:
        changed = [budget_row(_key(claim), most) for (most,) in before]
        _seal(recorder, counter, claim, added=[budget_row(_key(claim), claim.max)], removed=changed)
    return int(counter)


def _draw(recorder: Transaction, whose: tuple[str, int], draw: Draw, now_ms: int, counter: int) -> Drawn:
    run_id, epoch = whose
    window = window_at(draw.claim.window, now_ms)
    before, _ = _used(recorder, counter, window)
    rows = recorder.rows(f"SELECT epoch, used, held {_OF_RUN}", (counter, run_id))
    own = rows[0][1] if rows else 0.0
    key = _key(draw.claim)
    removed, added = [share_row(key, run_id, *row) for row in rows], []
    if amount := grown(draw.used, own):
        of_part = "SELECT part, used FROM budget_parts WHERE counter = ? AND part = ?", (counter, window.part)
        removed += [part_row(key, *row) for row in recorder.rows(*of_part)]
        recorder.change(_ADD, (counter, window.part, amount))
        added += [part_row(key, *row) for row in recorder.rows(*of_part)]
        oldest_parts = recorder.change(_DROP_OLDEST, (counter, counter, PARTS_KEPT - 1))
        removed += [part_row(key, *row) for row in oldest_parts]
    used, oldest = _used(recorder, counter, window)
    was = _held(recorder, counter, run_id)
    held = set_aside(draw, used=used, others=was.all - was.mine)
    share = (epoch, float(max(own, draw.used)), float(held or 0.0))
    recorder.change(_SHARE, (counter, run_id, *share))
    _seal(recorder, counter, draw.claim, added=[*added, share_row(key, run_id, *share)], removed=removed)
    return Drawn(
        claim=draw.claim,
        granted=held is not None,
        held=held or 0.0,
        before=before,
        used=used,
        reserved=_held(recorder, counter, run_id).all,
        resets_at=window.resets_at(oldest),
    )


def _key(claim: BudgetClaim) -> tuple[str, str, str, str]:
    return claim.budget, claim.key, claim.counts, claim.window


def _seal(
    recorder: Transaction, counter: int, claim: BudgetClaim, *, added: Sequence[Row] = (), removed: Sequence[Row] = ()
) -> None:
    """Have the seals of a budget and of all budgets follow from rows that came and went."""
    [(before,)] = recorder.rows("SELECT seal FROM budgets WHERE counter = ?", (counter,))
    if before is None:  # new
        digest = summed(b"", added=sealed_rows(recorder, counter, claim))
    else:
        digest = summed(before, added=added, removed=removed)
    recorder.change("UPDATE budgets SET seal = ? WHERE counter = ?", (digest, counter))
    found = recorder.rows("SELECT digest FROM seals WHERE name = ?", (BUDGETS,))
    whole = found[0][0] if found else b""
    if before is not None:
        whole = summed(whole, removed=[("seal", *_key(claim), before.hex())])
    whole = summed(whole, added=[("seal", *_key(claim), digest.hex())])
    recorder.change(_SEAL, (BUDGETS, whole))


def sealed_rows(tables: Tables, counter: int, claim: BudgetClaim) -> list[Row]:
    """All rows of a budget, as its seal is over them."""
    key = _key(claim)
    parts = tables.rows("SELECT part, used FROM budget_parts WHERE counter = ?", (counter,))
    shares = tables.rows("SELECT run_id, epoch, used, held FROM budget_shares WHERE counter = ?", (counter,))
    rows = [budget_row(key, claim.max)]
    return [*rows, *(part_row(key, *row) for row in parts), *(share_row(key, *row) for row in shares)]


def unsealed(tables: Tables) -> Iterator[str]:
    """Rows of budgets that were changed since they were written, in words."""
    whole = b""
    for counter, digest, *row in tables.rows(f"SELECT counter, seal, {_CLAIM} FROM budgets"):
        claim = _claim(row)
        whole = summed(whole, added=[("seal", *_key(claim), bytes(digest or b"").hex())])
        if summed(b"", added=sealed_rows(tables, counter, claim)) != bytes(digest or b""):
            key = f" of `{claim.key}`" if claim.key else ""
            yield f"budget `{claim.budget}`{key} has rows that were changed, or lacks some"
    found = tables.rows("SELECT digest FROM seals WHERE name = ?", (BUDGETS,))
    if whole != (bytes(found[0][0]) if found else b""):
        yield "the list of budgets was changed, or lacks some"
    orphans = tables.rows(_ORPHANS)
    if orphans != [(0,)]:
        yield "there are rows of budgets that are not there"


def _used(tables: Tables, counter: int, window: Window) -> tuple[float, int | None]:
    [(used, oldest)] = tables.rows(_USED, (counter, window.since))
    return round(used, DIGITS), oldest


def _held(tables: Tables, counter: int, run_id: str) -> _Held:
    sql = f"""SELECT sum(held), count(*), sum(CASE WHEN budget_shares.run_id = ? THEN held ELSE 0 END), status,
        {owner_columns(tables.dialect)}
        FROM budget_shares JOIN runs ON runs.run_id = budget_shares.run_id
        JOIN owners ON owners.epoch = runs.epoch WHERE counter = ? AND budget_shares.epoch != 0
            AND (status = 'running' OR status = 'created' AND runs.epoch = budget_shares.epoch)
        GROUP BY status, owners.epoch"""
    all, mine, runs = 0.0, 0.0, 0
    for held, count, own, status, *row in tables.rows(sql, (run_id, counter)):
        owner = owner_of(tables.dialect, tuple(row))
        if status == "running" or (owner is not None and not owner.gone):
            all, mine, runs = all + held, mine + own, runs + count
    return _Held(round(all, DIGITS), round(mine, DIGITS), runs)


def _claim(row: Iterable[Any]) -> BudgetClaim:
    budget, key, counts, window, most = row
    return BudgetClaim(budget=str(budget), key=str(key), counts=str(counts), window=str(window), max=float(str(most)))

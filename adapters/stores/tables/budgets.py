"""Shared budgets as rows: read, decided and written within one transaction, one reservation at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from proctor.policies.limits import BudgetAccount
from proctor.supervisor.ports import budget_ledger
from proctor.supervisor.ports.stored_types import GOING_ON
from proctor.supervisor.store import invariants
from proctor.supervisor.store.records import run_over

from .batches import Tables, find_owner, owner_columns, owner_of
from .recording import Transaction
from .schema import BUDGETS
from .seals import all_marks, budget_marked, mark, marked

Clock: TypeAlias = Callable[[Tables], int]
"""The time for the windows, in ms since the epoch."""
_KEY = "budget, key, counts, period"
_CLAIM = f"{_KEY}, most"
_USED = "SELECT coalesce(sum(used), 0), min(part) FROM budget_parts WHERE counter = ? AND part >= ?"
_USED_OF_ALL = """SELECT counter, sum(used), min(part) FROM budget_parts JOIN budgets USING (counter)
    WHERE period = ? AND part >= ? GROUP BY counter"""
_ADD = """INSERT INTO budget_parts VALUES (?, ?, ?)
    ON CONFLICT (counter, part) DO UPDATE SET used = budget_parts.used + excluded.used"""
_DROP_OLDEST = """DELETE FROM budget_parts WHERE counter = ? AND part < ? AND part <
    (SELECT part FROM budget_parts WHERE counter = ? ORDER BY part DESC LIMIT 1 OFFSET ?) RETURNING part, used"""
_OF_RUN = "FROM budget_shares WHERE counter = ? AND run_id = ?"
_ORPHANS = """SELECT (SELECT count(*) FROM budget_parts WHERE counter NOT IN (SELECT counter FROM budgets))
    + (SELECT count(*) FROM budget_shares WHERE counter NOT IN (SELECT counter FROM budgets))"""
_SHARE = """INSERT INTO budget_shares (counter, run_id, epoch, used, held) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (counter, run_id) DO UPDATE SET epoch = excluded.epoch, used = excluded.used, held = excluded.held"""


class _Reserved(NamedTuple):
    """Reserved amounts; `mine` is one run's. Runs of lost owners keep theirs until they are settled; a run that never
    started, only until its owner is lost.
    """

    all: float
    mine: float
    runs: int


_NOTHING = _Reserved(0.0, 0.0, 0)


def reserve(
    recorder: Transaction, run_id: str, reservations: Sequence[budget_ledger.Reservation], epoch: int, now_ms: Clock
) -> list[budget_ledger.ReservationResult]:
    """Answer each reservation of a run; see `Store.reserve`."""
    now = _begin(recorder, run_id, epoch, now_ms)
    return [
        _reserve_one(recorder, (run_id, epoch), reservation, now, _counter(recorder, reservation.claim))
        for reservation in reservations
    ]


def settle(
    recorder: Transaction, run_id: str, used: Mapping[str, float], epoch: int, now_ms: Clock
) -> list[budget_ledger.ReservationResult]:
    """A run reserves no more; see `Store.settle`."""
    now = _begin(recorder, run_id, epoch, now_ms)
    found = []
    sql = f"SELECT counter, {_CLAIM} FROM budgets JOIN budget_shares USING (counter) WHERE run_id = ?"
    for counter, *row in recorder.rows(sql, (run_id,)):
        claim = _claim(row)
        reservation = budget_ledger.Reservation(claim=claim, used=used.get(claim.counts, 0.0))
        found.append(_reserve_one(recorder, (run_id, epoch), reservation, now, counter))
        gone = recorder.change(f"DELETE {_OF_RUN} RETURNING epoch, used, held", (counter, run_id))
        _mark(recorder, counter, [_share_mark(claim.identity, run_id, *row) for row in gone])
    return found


def listed(tables: Tables, now_ms: Clock) -> list[budget_ledger.BudgetInfo]:
    """Every budget in use so far, in as many queries however many there are."""
    rows = tables.rows(f"SELECT counter, {_CLAIM} FROM budgets ORDER BY {_KEY}")
    now = now_ms(tables) if rows else 0
    windows = {period: budget_ledger.window_at(period, now) for _, _, _, _, period, _ in rows}
    used: dict[int, tuple[float, int | None]] = {}
    for period, window in windows.items():
        used |= {counter: found for counter, *found in tables.rows(_USED_OF_ALL, (period, window.since))}
    held = _reserved_of_each(tables, "")
    found = []
    for counter, *row in rows:
        its = held.get(counter, _NOTHING)
        amounts = used.get(counter, (0.0, None))
        found.append(budget_ledger.shown(_claim(row), windows[row[3]], *amounts, reserved=its.all, runs=its.runs))
    return found


def _begin(recorder: Transaction, run_id: str, epoch: int, now_ms: Clock) -> int:
    """Begin a transaction, if the run may reserve; returns its time."""
    recorder.lock_budgets()
    rows = recorder.rows(f"SELECT status, epoch FROM runs WHERE run_id = ?{recorder.dialect.lock}", (run_id,))
    if not rows:
        raise invariants.no_run(run_id)
    [(status, its)] = rows
    if status not in GOING_ON:
        raise run_over(run_id, status)
    if its != epoch:
        raise invariants.fenced(run_id, find_owner(recorder, its))
    return now_ms(recorder)


def _counter(recorder: Transaction, claim: BudgetAccount) -> int:
    """The number of a budget's row, which holds the maximum of the last reservation."""
    named = " AND ".join(f"{name} = ?" for name in _KEY.split(", "))
    before = recorder.rows(f"SELECT most FROM budgets WHERE {named}", claim.identity)
    sql = f"""INSERT INTO budgets ({_CLAIM}) VALUES (?, ?, ?, ?, ?)
        ON CONFLICT ({_KEY}) DO UPDATE SET most = excluded.most RETURNING counter"""
    [(counter,)] = recorder.change(sql, (*claim.identity, float(claim.max)))
    if before != [(float(claim.max),)]:
        _mark(
            recorder,
            counter,
            [_budget_mark(claim.identity, most) for most in (claim.max, *(most for (most,) in before))],
        )
    return int(counter)


def _reserve_one(
    recorder: Transaction, whose: tuple[str, int], reservation: budget_ledger.Reservation, now_ms: int, counter: int
) -> budget_ledger.ReservationResult:
    run_id, epoch = whose
    window = budget_ledger.window_at(reservation.claim.window, now_ms)
    before, _ = _used(recorder, counter, window)
    rows = recorder.rows(f"SELECT epoch, used, held {_OF_RUN}", (counter, run_id))
    own = rows[0][1] if rows else 0.0
    key = reservation.claim.identity
    marks = [_share_mark(key, run_id, *row) for row in rows]
    if amount := budget_ledger.grown(reservation.used, own):
        of_part = "SELECT part, used FROM budget_parts WHERE counter = ? AND part = ?", (counter, window.part)
        changed = recorder.rows(*of_part)
        recorder.change(_ADD, (counter, window.part, amount))
        changed += recorder.rows(*of_part)
        changed += recorder.change(_DROP_OLDEST, (counter, window.since, counter, budget_ledger.PARTS_KEPT - 1))
        marks += [_part_mark(key, *row) for row in changed]
    used, oldest = _used(recorder, counter, window)
    was = _reserved_of(recorder, counter, run_id)
    held = budget_ledger.allocate(reservation, used=used, own=was.mine, others=was.all - was.mine)
    share = (epoch, float(max(own, reservation.used)), float(held or 0.0))
    recorder.change(_SHARE, (counter, run_id, *share))
    _mark(recorder, counter, [*marks, _share_mark(key, run_id, *share)])
    return budget_ledger.ReservationResult(
        claim=reservation.claim,
        granted=held is not None,
        held=held or 0.0,
        before=before,
        used=used,
        reserved=_reserved_of(recorder, counter, run_id).all,
        resets_at=window.resets_at(oldest),
    )


def _mark(recorder: Transaction, counter: int, marks: Sequence[int]) -> None:
    """Update the marks of a budget, and those of all budgets, by the rows added and removed."""
    recorder.change(*budget_marked(counter, *marks))
    recorder.change(*marked(BUDGETS, *marks))


def _budget_mark(key: Sequence[str], most: float) -> int:
    return mark("budget", *key, float(most))


def _part_mark(key: Sequence[str], part: int, used: float) -> int:
    return mark("part", *key, int(part), float(used))


def _share_mark(key: Sequence[str], run_id: str, epoch: int, used: float, held: float) -> int:
    return mark("share", *key, run_id, int(epoch), float(used), float(held))


def marked_rows(tables: Tables) -> Iterator[tuple[BudgetAccount, int, int]]:
    """Each budget with its stored marks and the marks of its rows."""
    for counter, own, *row in tables.rows(f"SELECT counter, marks, {_CLAIM} FROM budgets"):
        claim = _claim(row)
        key = claim.identity
        parts = tables.rows("SELECT part, used FROM budget_parts WHERE counter = ?", (counter,))
        shares = tables.rows("SELECT run_id, epoch, used, held FROM budget_shares WHERE counter = ?", (counter,))
        marks = [_budget_mark(key, claim.max), *(_part_mark(key, *row) for row in parts)]
        yield claim, own, all_marks([*marks, *(_share_mark(key, *row) for row in shares)])


def orphans(tables: Tables) -> int:
    """How many rows belong to no budget."""
    [(found,)] = tables.rows(_ORPHANS)
    return int(found)


def _used(tables: Tables, counter: int, window: budget_ledger.Window) -> tuple[float, int | None]:
    [(used, oldest)] = tables.rows(_USED, (counter, window.since))
    return round(used, budget_ledger.DIGITS), oldest


def _reserved_of(tables: Tables, counter: int, run_id: str) -> _Reserved:
    return _reserved_of_each(tables, run_id, "counter = ?", counter).get(counter, _NOTHING)


def _reserved_of_each(tables: Tables, run_id: str, where: str = "TRUE", *values: Any) -> dict[int, _Reserved]:
    """What is reserved of each budget, by its number."""
    sql = f"""SELECT counter, sum(held), count(*), sum(CASE WHEN budget_shares.run_id = ? THEN held ELSE 0 END),
        status, {owner_columns(tables.dialect)}
        FROM budget_shares JOIN runs ON runs.run_id = budget_shares.run_id
        LEFT JOIN owners ON owners.epoch = runs.epoch WHERE {where} AND budget_shares.epoch != 0
            AND (status = 'running' OR status = 'created' AND runs.epoch = budget_shares.epoch)
        GROUP BY counter, status, owners.epoch"""
    found: dict[int, _Reserved] = {}
    for counter, held, count, own, status, *row in tables.rows(sql, (run_id, *values)):
        owner = owner_of(tables.dialect, tuple(row))
        if status == "running" or (owner is not None and not owner.gone):
            all, mine, runs = found.get(counter, _NOTHING)
            found[counter] = _Reserved(
                round(all + held, budget_ledger.DIGITS), round(mine + own, budget_ledger.DIGITS), runs + count
            )
    return found


def _claim(row: Iterable[Any]) -> BudgetAccount:
    budget, key, counts, window, most = row
    return BudgetAccount(
        budget=str(budget), key=str(key), counts=str(counts), window=str(window), max=float(str(most))
    )

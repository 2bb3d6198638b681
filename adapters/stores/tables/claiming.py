"""Ownership of runs: owners register and leave, and each claim is decided in one transaction."""

from typing import Any

from msgspec.structs import replace

from proctor.supervisor.ports.stored_types import Owner, RunInfo
from proctor.supervisor.store import invariants
from proctor.supervisor.store.records import owners

from . import queries
from .batches import find_owner, owner_columns, owner_of, owner_row
from .recording import Transaction
from .schema import CLAIMED, OWNERS
from .seals import RUN, marked, owner_mark, row_digest, run_digest

_OTHERS = f"""FROM runs JOIN owners ON owners.epoch = runs.epoch
    WHERE session_key = (SELECT key FROM sessions WHERE session_id = ?) AND run_id != ? AND runs.{CLAIMED}"""


def register(recorder: Transaction, owner: Owner, *, lease_s: float) -> Owner:
    """Register an owner; returns it with its epoch. If the answer is lost, the owner is gone with its lease."""
    recorder.lock()
    sql = f"""INSERT INTO owners (owner_id, host, machine, pid, started, until)
        VALUES (?, ?, ?, ?, ?, {recorder.dialect.lease_end}) RETURNING epoch"""
    row = (owner.owner_id, owner.host, owner.machine, owner.pid, owner.started, recorder.dialect.lease(lease_s))
    [(epoch,)] = recorder.change(sql, row)
    _seal(recorder, epoch)
    recorder.write(*marked(OWNERS, owner_mark(epoch)), in_order=True)
    return replace(owner, epoch=epoch, after=recorder.last_command, gone=False)


def renew(recorder: Transaction, epoch: int, *, lease_s: float) -> None:
    """Extend a lease; StoreError(kind="fenced") for an owner that has left."""
    recorder.lock()
    end = recorder.dialect.lease_end
    sql = f"UPDATE owners SET until = {end} WHERE epoch = ? AND until IS NOT NULL RETURNING epoch"
    if not recorder.change(sql, (recorder.dialect.lease(lease_s), epoch)):
        raise invariants.no_owner(epoch)
    _seal(recorder, epoch)


def release(recorder: Transaction, epoch: int) -> None:
    """Release an owner."""
    recorder.lock()
    if recorder.change("UPDATE owners SET until = NULL WHERE epoch = ? RETURNING epoch", (epoch,)):
        _seal(recorder, epoch)


def _seal(recorder: Transaction, epoch: int) -> None:
    [row] = recorder.rows(f"SELECT {owner_row(recorder.dialect)} FROM owners WHERE epoch = ?", (epoch,))
    recorder.change("UPDATE owners SET seal = ? WHERE epoch = ? RETURNING epoch", (row_digest("owner", *row), epoch))


def create(recorder: Transaction, run: RunInfo, *, epoch: int = 0) -> RunInfo:
    """Register a run, for an owner where an epoch is given; see `Store.create_run`."""
    recorder.lock([run.session_id], [run.run_id])
    recorder.check_new(run)
    owner = _claim_session(recorder, run.run_id, run.session_id, epoch) if epoch else None
    recorder.insert_run(run, epoch)
    tenant, labels = owners(run.spec)
    return replace(run, owner=owner, after=recorder.last_command, tenant=tenant, labels=labels)


def claim(recorder: Transaction, run_id: str, *, epoch: int, lost: bool = False) -> RunInfo:
    """Make an owner the only writer of a run; see `Store.claim_run`."""
    session_id = _found(recorder, run_id).session_id
    recorder.lock([session_id], [run_id])
    run = _found(recorder, run_id)
    invariants.check_claim(run, epoch, lost=lost)
    attempts = run.attempts_with(epoch, lost=lost)
    owner = _claim_session(recorder, run_id, run.session_id, epoch)
    _set_owner(recorder, run_id, run.session_id, epoch, attempts)
    return replace(run, owner=owner, status="running" if run.status == "lost" else run.status, attempts=attempts)


def release_run(recorder: Transaction, run_id: str, *, epoch: int) -> None:
    """Undo a claim; see `Store.release_run`."""
    if (found := queries.run_info(recorder, run_id)) is None:
        return
    recorder.lock([found.session_id], [run_id])
    run = queries.run_info(recorder, run_id)
    if run is not None and run.is_claimed_by(epoch):
        _set_owner(recorder, run_id, run.session_id, 0, max(run.attempts - 1, 0))


def _found(recorder: Transaction, run_id: str) -> RunInfo:
    run = queries.run_info(recorder, run_id)
    if run is None:
        raise invariants.no_run(run_id)
    return run


def _claim_session(recorder: Transaction, run_id: str, session_id: str, epoch: int) -> Owner:
    """Release claims on the session's runs that never started. Raises StoreError if the owner, or another run of the
    session, rules the claim out.
    """
    owner = find_owner(recorder, epoch)
    if owner is None or owner.gone:
        raise invariants.no_owner(epoch)
    columns = f"SELECT runs.attempts, run_id, status, {owner_columns(recorder.dialect)}"
    others: list[Any] = recorder.rows(f"{columns} {_OTHERS}", (session_id, run_id))
    for _, other, status, *row in others:
        its = owner_of(recorder.dialect, tuple(row))
        if its is not None and (not its.gone or status == "running"):
            raise invariants.session_busy(session_id, other, its)
    for attempts, other, *_ in others:
        _set_owner(recorder, other, session_id, 0, attempts)
    return owner


def _set_owner(recorder: Transaction, run_id: str, session_id: str, epoch: int, attempts: int) -> None:
    [row] = recorder.rows(f"SELECT {RUN} FROM runs WHERE run_id = ?", (run_id,))
    digest = run_digest(run_id, session_id, tuple(row), epoch, attempts)
    sql = "UPDATE runs SET epoch = ?, attempts = ?, seal = ? WHERE run_id = ?"
    recorder.write(sql, (epoch, attempts, digest, run_id), runs=[run_id])

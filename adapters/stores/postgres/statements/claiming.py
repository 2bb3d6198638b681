"""Who owns a run: owners come and go, and claim in the transaction they are asked about in."""

from __future__ import annotations

from msgspec.structs import replace

from proctor.supervisor.ports.facts import NOT_OVER, Owner, RunInfo
from proctor.supervisor.store import refusals

from ..schema import CLAIMED
from . import queries
from .owners import LEASE_END, OWNER_COLUMNS, find_owner, owner_of
from .recording import Recorder

_OTHERS = f"""SELECT runs.number, run_id, status, {OWNER_COLUMNS} FROM runs JOIN owners ON owners.epoch = runs.epoch
    WHERE session_key = (SELECT key FROM sessions WHERE session_id = %s) AND run_id != %s AND runs.{CLAIMED}"""
_REGISTER = f"""INSERT INTO owners (owner_id, host, machine, pid, started, until)
    VALUES (%s, %s, %s, %s, %s, {LEASE_END}) RETURNING epoch"""


def register(recorder: Recorder, owner: Owner, lease_s: float) -> Owner:
    """Let an owner in; returns it with its epoch. One that was let in and never told is gone with its lease."""
    row = (owner.owner_id, owner.host, owner.machine, owner.pid, owner.started, lease_s)
    recorder.begin()
    [(epoch,)] = recorder.change(_REGISTER, row).fetchall()
    return replace(owner, epoch=epoch, after=recorder.last_instruction, gone=False)


def renew(recorder: Recorder, epoch: int, lease_s: float) -> None:
    """Put the end of a lease off; StoreError(kind="fenced") for an owner that has left."""
    recorder.begin()
    sql = f"UPDATE owners SET until = {LEASE_END} WHERE epoch = %s AND until IS NOT NULL"
    if not recorder.change(sql, (lease_s, epoch)).rowcount:
        raise refusals.no_owner(epoch)


def release(recorder: Recorder, epoch: int) -> None:
    """The owner leaves."""
    recorder.begin()
    recorder.write("UPDATE owners SET until = NULL WHERE epoch = %s", (epoch,))


def create(recorder: Recorder, run: RunInfo, epoch: int) -> RunInfo:
    """Register a run, for an owner where an epoch is given; see `Store.create_run`."""
    recorder.begin([run.session_id], [run.run_id])
    recorder.check_new(run)
    owner = _check(recorder, run.run_id, run.session_id, epoch) if epoch else None
    if epoch:
        _leave_others(recorder, run.run_id, run.session_id)
    recorder.insert_run(run, epoch)
    return replace(run, owner=owner, after=recorder.last_instruction)


def claim(recorder: Recorder, run_id: str, epoch: int, *, lost: bool) -> RunInfo:
    """Make an owner the only writer of a run; see `Store.claim_run`."""
    known = queries.run_info(recorder.connection, run_id)
    if known is None:
        raise refusals.no_run(run_id)
    recorder.begin([known.session_id], [run_id])
    run = queries.run_info(recorder.connection, run_id)
    if run is None:
        raise refusals.no_run(run_id)
    if run.status not in NOT_OVER:
        raise refusals.run_over(run_id, run.status)
    owner = run.owner
    if owner is not None and not owner.gone and not (owner.epoch == epoch and run.status == "created"):
        raise refusals.claimed(run_id, owner)
    if run.status != "created" and not lost:
        raise refusals.started(run_id)
    owner = _check(recorder, run_id, run.session_id, epoch)
    _leave_others(recorder, run_id, run.session_id)
    recorder.write("UPDATE runs SET epoch = %s WHERE run_id = %s", (epoch, run_id))
    return replace(run, owner=owner, status="running" if run.status == "lost" else run.status)


def _check(recorder: Recorder, run_id: str, session_id: str, epoch: int) -> Owner:
    """Raises StoreError where the owner, or another run of the session, does not let the run be claimed."""
    owner = find_owner(recorder.connection, epoch)
    if owner is None or owner.gone:
        raise refusals.no_owner(epoch)
    for _number, other, status, *row in recorder.ask(_OTHERS, (session_id, run_id)).fetchall():
        its = owner_of(tuple(row))
        if its is not None and (not its.gone or status == "running"):
            raise refusals.session_busy(session_id, other, its)
    return owner


def _leave_others(recorder: Recorder, run_id: str, session_id: str) -> None:
    """What another had claimed of the session and never started is claimed by nobody from now on."""
    for number, *_ in recorder.ask(_OTHERS, (session_id, run_id)).fetchall():
        recorder.write("UPDATE runs SET epoch = 0 WHERE number = %s", (number,))

"""Who owns a run: owners come and go, and claim in the transaction they are asked about in."""

from __future__ import annotations

from msgspec.structs import replace

from proctor.supervisor.ports.facts import NOT_OVER, Owner, RunInfo
from proctor.supervisor.store import refusals

from ..schema.tables import CLAIMED
from . import queries
from .desk import last_instruction
from .owners import OWNER_COLUMNS, find_owner, lease_end, owner_of
from .recording import Recorder

_OTHERS = f"""SELECT runs.number, run_id, status, {OWNER_COLUMNS} FROM runs JOIN owners ON owners.epoch = runs.epoch
    WHERE session_key = (SELECT key FROM sessions WHERE session_id = ?) AND run_id != ? AND runs.{CLAIMED}"""


def register(recorder: Recorder, owner: Owner, lease_s: float) -> Owner:
    """Let an owner in; returns it with its epoch."""
    row = (owner.owner_id, owner.host, owner.machine, owner.pid, owner.started, lease_end(lease_s))
    sql = "INSERT INTO owners (owner_id, host, machine, pid, started, until) VALUES (?, ?, ?, ?, ?, ?)"
    epoch = int(recorder.execute(sql, row).lastrowid or 0)
    return replace(owner, epoch=epoch, after=recorder.ask(last_instruction), gone=False)


def renew(recorder: Recorder, epoch: int, lease_s: float) -> None:
    """Put the end of a lease off; StoreError(kind="fenced") for an owner that has left."""
    sql = "UPDATE owners SET until = ? WHERE epoch = ? AND until IS NOT NULL"
    if not recorder.execute(sql, (lease_end(lease_s), epoch)).rowcount:
        raise refusals.no_owner(epoch)


def release(recorder: Recorder, epoch: int) -> None:
    """The owner leaves."""
    recorder.execute("UPDATE owners SET until = NULL WHERE epoch = ?", (epoch,))


def create(recorder: Recorder, run: RunInfo, epoch: int) -> RunInfo:
    """Register a run, for an owner where an epoch is given; see `Store.create_run`."""
    recorder.check_new(run)
    owner = _check(recorder, run.run_id, run.session_id, epoch) if epoch else None
    recorder.create_run(run)
    if epoch:
        _claim(recorder, run.run_id, run.session_id, epoch)
    return replace(run, owner=owner, after=recorder.ask(last_instruction))


def claim(recorder: Recorder, run_id: str, epoch: int, *, lost: bool) -> RunInfo:
    """Make an owner the only writer of a run; see `Store.claim_run`."""
    run = recorder.ask(lambda connection: queries.run_info(connection, run_id))
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
    _claim(recorder, run_id, run.session_id, epoch)
    return replace(run, owner=owner, status="running" if run.status == "lost" else run.status)


def _check(recorder: Recorder, run_id: str, session_id: str, epoch: int) -> Owner:
    """Raises StoreError where the owner, or another run of the session, does not let the run be claimed."""
    owner = recorder.ask(lambda connection: find_owner(connection, epoch))
    if owner is None or owner.gone:
        raise refusals.no_owner(epoch)
    for _number, other, status, *row in recorder.execute(_OTHERS, (session_id, run_id)).fetchall():
        its = owner_of(tuple(row))
        if its is not None and (not its.gone or status == "running"):
            raise refusals.session_busy(session_id, other, its)
    return owner


def _claim(recorder: Recorder, run_id: str, session_id: str, epoch: int) -> None:
    """What another had claimed of the session and never started is claimed by nobody from now on."""
    for number, other, *_ in recorder.execute(_OTHERS, (session_id, run_id)).fetchall():
        recorder.execute("UPDATE runs SET epoch = 0 WHERE number = ?", (number,))
        recorder.forget_run(other)
    recorder.execute("UPDATE runs SET epoch = ? WHERE run_id = ?", (epoch, run_id))
    recorder.forget_run(run_id)

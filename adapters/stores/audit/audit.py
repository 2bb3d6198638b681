"""An audit of a store, read in one snapshot."""

import os
from datetime import UTC, datetime

import msgspec

from proctor.policies.values.amounts import counted

from ..postgres import check_installed
from ..store_names import is_url, shown
from ..tables.schema import RUNS
from .list_checks import Lists
from .sources import AuditSource, reading_file
from .verify import AuditFinding, CommandVerifier, Heads, Pruned, Verifier, answers_in


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit.

    Attributes:
        path: the store, as it may be shown.
        intact: whether every stored record is as it was written.
        complete: whether every record that was written is stored, or was pruned.
        anchored: how many sessions were compared with a checkpoint; None without one.
        findings: the first thousand findings.
        more: how many findings there are besides.
        pruned: sessions whose record was removed with `prune`.
        heads: a new checkpoint: the ends of sessions and commands now.
    """

    path: str
    intact: bool
    complete: bool
    records: int
    anchored: int | None
    findings: tuple[AuditFinding, ...]
    more: int
    pruned: tuple[Pruned, ...]
    heads: Heads


def audited(named: str | os.PathLike[str], anchor: Heads | None = None) -> AuditReport:
    """Audit a store. Raises StoreError if it cannot be read, UsageError if there is none."""
    if is_url(named):
        check_installed()
        from .database import reading_database

        with reading_database(os.fspath(named)) as source:
            return _audit(source, shown(named), anchor)

    with reading_file(named) as source:
        return _audit(source, shown(named), anchor)


def _audit(source: AuditSource, path: str, anchor: Heads | None) -> AuditReport:
    verifier = Verifier(anchor)
    if anchor is not None and anchor.store_id != source.store_id:
        verifier.find("integrity", "replaced", "this is not the store that the checkpoint is of")
    commands = list(source.commands)
    lists = Lists(answers_in(commands))
    for record in source.records:
        verifier.apply(record)
        lists.apply(record)
    verifier.finish()
    _count(source.stored, verifier)
    for kind, name in source.planted:  # it could show, or keep, another record than is written
        message = f"the store has a {kind} `{name}` that no version of proctor makes, or lacks one that it makes"
        verifier.find("integrity", "planted", message)
    lists.check(verifier, source.runs, source.approvals)
    lists.check_marks(verifier, source.seals.get(RUNS))
    lists.check_sessions(verifier, source.sessions)
    command_verifier = CommandVerifier(verifier, anchor)
    command_verifier.check(commands, source.blocks)
    for message in source.changed:
        verifier.find("integrity", "list_changed", message)
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    about = {finding.about for finding in verifier.findings}
    return AuditReport(
        path=path,
        intact="integrity" not in about,
        complete="completeness" not in about,
        records=verifier.records,
        anchored=None if anchor is None else len(anchor.sessions),
        findings=tuple(verifier.findings),
        more=verifier.more,
        pruned=tuple(verifier.pruned),
        heads=Heads(
            store_id=source.store_id,
            records=verifier.records,
            made_at=made_at,
            sessions=tuple(verifier.heads()),
            orders=command_verifier.head,
        ),
    )


def _count(stored: int, verifier: Verifier) -> None:
    """Check that the store's records are numbered without gaps; those pruned before an import do not count."""
    missing = stored - verifier.records
    pruned = sum(one.records for one in verifier.pruned)
    if missing > pruned:
        more = f"; {pruned:,} pruned" if pruned else ""
        verifier.find(
            "completeness", "uncounted", f"missing: {missing:,} of the {counted(stored, 'record')} stored{more}"
        )
    elif missing < 0:
        verifier.find("integrity", "uncounted", f"there: {counted(-missing, 'record')} more than stored")
    if verifier.last_position > stored:
        last = verifier.last_position
        verifier.find("integrity", "uncounted", f"a record has number {last}, and {stored} were given: it was moved")

"""`audit`, `prune`, `export`, `import` and `store`: a store's records, checked, deleted, copied."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click
import msgspec

from proctor.policies.errors import os_words
from proctor.policies.values.amounts import counted
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.store import closing

from ...kit.values import login_name
from ...stores.store_names import shown
from ..exits import FINE, VIOLATED
from ..options import (
    Age,
    by_option,
    existing_file,
    existing_store,
    is_there_as_named,
    json_option,
    opened,
    run_async,
    session_option,
    size_text,
    store_named,
    store_option,
    write_document,
)
from ..output import echo, echo_json, echo_rows, note, output_option, output_parameter, replaced, written_to
from ..persons import check_outside_runs

if TYPE_CHECKING:
    from proctor.supervisor import ImportReport, PruneReport, StoreSize

    from ...stores.audit.audit import AuditReport


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("audit")
def audit() -> None:
    """Check that the event log is complete and unchanged.

    Each event has a digest that covers the event before it. `head` prints a checkpoint: the last digest of each
    session. Keep it where nobody here can write. `verify` checks all events, and compares them with a checkpoint.
    """


@audit.command("head", short_help="Print a checkpoint.")
@store_option
@click.option("--sign", "key", type=_FILE, metavar="KEY", help="Sign it with this Ed25519 private key (PEM).")
@output_parameter
@click.option("--json", is_flag=True, expose_value=False, help="The output is always JSON.")
def head(store: str | None, key: Path | None, output: str | None) -> int:
    """Print a checkpoint, the last digest of each session, as one line of JSON. Keep it elsewhere."""
    from ...stores.audit.audit import audited
    from ...stores.audit.verify import encode, signed

    report = audited(existing_store(store))
    if report.findings:
        echo("\n".join(_lines(report)))
        return VIOLATED
    heads = report.heads if key is None else signed(report.heads, key)
    with written_to(output):
        write_document(encode(heads).decode())
    return FINE


@audit.command("verify", short_help="Check every event.")
@store_option
@click.option("--anchor", type=_FILE, metavar="FILE", help="A checkpoint that `audit head` printed.")
@click.option("--key", type=_FILE, metavar="KEY", help="The public key (PEM) of the checkpoint's signature.")
@output_option
@json_option
def verify(store: str | None, anchor: Path | None, key: Path | None, as_json: bool) -> int:
    """Check that every event is unchanged, and that none is missing. The store isn't changed.

    Exit codes: 0 all is well, 1 events were changed or are missing, 2 the store or checkpoint isn't there, 3 the
    store can't be read.

    \b
    proctor audit verify --anchor heads.json
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from ...stores.audit.audit import audited
    from ...stores.audit.verify import check_signature, read_heads

    if key is not None and anchor is None:
        raise click.UsageError("`--key` is for the signature of an `--anchor`")
    kept = None if anchor is None else read_heads(anchor)
    if kept is not None and key is not None:
        check_signature(kept, key)
    report = audited(existing_store(store), kept)
    data = {"type": "audit", "signed": key is not None, **msgspec.to_builtins(report)}
    echo_rows([(data, "\n".join(_lines(report)))], as_json=as_json)
    return FINE if report.intact and report.complete else VIOLATED


def _lines(report: AuditReport) -> Iterator[str]:
    for finding in report.findings:
        place = f" {finding.seq}" if finding.seq else ""
        where = f"session {finding.session_id}{place}: " if finding.session_id else ""
        yield f"{finding.code}: {where}{finding.message}"
    if report.more:
        yield f"and {report.more} more"
    for one in report.pruned:
        when = "" if one.at is None else f" on {one.at:%Y-%m-%d}"
        yield f"pruned: session {one.session_id}: {counted(one.records, 'record')}{when}"
    compared = (
        "no checkpoint was given"
        if report.anchored is None
        else f"compared with a checkpoint of {counted(report.anchored, 'session')}"
    )
    sessions = counted(len(report.heads.sessions), "session")
    yield f"{counted(report.records, 'record')} in {sessions}; {compared}"
    yield f"integrity: {'no record was changed' if report.intact else 'NOT INTACT'}"
    yield f"completeness: {'nothing is missing' if report.complete else 'NOT COMPLETE'}"


@click.command()
@click.option(
    "--older-than",
    type=Age(),
    required=True,
    metavar="AGE",
    help="Only sessions without a new event for this long: 90d, 12h.",
)
@click.option("--keep-violations", is_flag=True, help="Keep sessions with a violation.")
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@by_option
@store_option
@json_option
def prune(
    older_than: timedelta, keep_violations: bool, dry_run: bool, by: str | None, store: str | None, as_json: bool
) -> None:
    """Remove old sessions and free their space. A session with an unfinished run is never removed.

    One event, `record_pruned`, stays for each session, so that numbers and digests continue.

    \b
    proctor prune --older-than 90d --keep-violations --dry-run
    """  # noqa: D301 - click's mark for lines that are kept as they are
    from proctor.supervisor.store.maintenance import prune

    check_outside_runs("prune")
    if not is_there_as_named(store):
        note("no runs")
        return

    async def pruned() -> tuple[PruneReport, int, int]:
        async with opened(store, must_exist=True) as opened_store:
            before = (await opened_store.size()).bytes
            report = await prune(
                opened_store,
                older_than=older_than,
                keep_violations=keep_violations,
                by=by or login_name(),
                dry_run=dry_run,
            )
            return report, before, (await opened_store.size()).bytes

    report, before, after = run_async(pruned)
    if as_json:
        echo_json(
            {**msgspec.structs.asdict(report), "dry_run": dry_run, "bytes_before": before, "bytes_after": after}
        )
        return

    would = "would remove" if dry_run else "removed"
    what = f"{counted(report.runs, 'run')}, {counted(report.events, 'event')}"
    echo(f"{would} {counted(report.sessions, 'session')}: {what}")
    if report.kept_going_on:
        echo(f"kept {report.kept_going_on} with an unfinished run (`proctor reap` ends those without an owner)")
    if report.kept_with_violations:
        echo(f"kept {report.kept_with_violations} with violations")
    if report.kept_unreadable:
        echo(f"kept {report.kept_unreadable} that cannot be read (`proctor audit verify` says which)")
    if not dry_run:
        echo(f"the store was {size_text(before)}, now {size_text(after)}")


@click.command("store")
@click.option("--make", is_flag=True, help="Create the store, or upgrade an older one.")
@click.option("--backup", metavar="FILE", help="Copy the store to this new file. Runs can continue meanwhile.")
@store_option
@output_option
@json_option
def store_(make: bool, backup: str | None, store: str | None, as_json: bool) -> None:
    """Show where the store is, how many events it has, and how much space it takes."""
    if make and backup is not None:
        raise click.UsageError("choose one of `--make` and `--backup FILE`")
    if backup is not None:
        _copy(store, backup, as_json=as_json)
        return
    path = shown(store_named(store))
    if not (make or is_there_as_named(store)):
        note(f"there is no store at `{path}`; `proctor store --make` creates one")
        return

    async def measure() -> tuple[StoreSize, int]:
        async with opened(store, must_exist=not make) as opened_store:
            return await opened_store.size(), len(await opened_store.approvals(limit=100_000))

    size, waiting = run_async(measure)
    if as_json:
        echo_json({"path": path, **msgspec.structs.asdict(size), "approvals_waiting": waiting})
        return

    statuses = ", ".join(f"{count:,} {status}" for status, count in sorted(size.runs.items()))
    free = f", {size_text(size.free_bytes)} of it free" if size.free_bytes else ""
    echo(f"store     {path}")
    echo(f"size      {size_text(size.bytes)}{free}")
    echo(f"sessions  {size.sessions:,}")
    echo(f"runs      {sum(size.runs.values()):,}{f': {statuses}' if statuses else ''}")
    echo(f"events    {size.events:,}")
    echo(f"waiting   {counted(waiting, 'approval')}")


def _copy(store: str | None, target: str, *, as_json: bool) -> None:
    """Raises UsageError for a database, which has a tool of its own for that."""
    from ...stores.sqlite.file import copy_store

    size = copy_store(existing_file(store), Path(target))
    if as_json:
        echo_json({"file": target, "bytes": size})
    else:
        note(f"{size_text(size)} in {target}")


@click.command("export")
@session_option("Only this session.")
@output_parameter
@store_option
@json_option
def export(session: str | None, output: str | None, store: str | None, as_json: bool) -> None:
    """Write the event log as lines of JSON, exactly as stored, for `import`. With -o, --json reports how many."""
    from proctor.supervisor.store.maintenance import export_lines

    async def exported(file: IO[bytes]) -> int:
        count = -1
        async with opened(store, must_exist=True) as opened_store:
            if session is not None and await opened_store.session(session) is None:
                raise click.UsageError(f"there is no session `{session}`; `proctor runs` lists them")
            async with closing(export_lines(opened_store, session_id=session)) as lines:
                async for line in lines:
                    file.write(line)
                    count += 1
        file.flush()
        return count

    if output is None or output == "-":
        run_async(lambda: exported(sys.stdout.buffer))
        return
    with replaced(output) as file:
        count = run_async(lambda: exported(file))
    if as_json:
        echo_json({"lines": count, "file": output})
    else:
        note(f"{counted(count, 'line')} in {output}")


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@store_option
@json_option
def import_(file: str, store: str | None, as_json: bool) -> None:
    """Load events that `export` wrote. Events that are already in the store stay as they are."""
    from proctor.supervisor.store.maintenance import import_lines

    check_outside_runs("import")

    async def imported() -> ImportReport:
        async with opened(store) as opened_store:
            with click.open_file(file, "rb") as source:
                try:
                    return await import_lines(opened_store, _transfer_lines(source))
                except UsageError as error:
                    raise UsageError(f"{source.name}: {error}") from None

    report = run_async(imported)
    there = f"; there already: {counted(report.already_there, 'event')}" if report.already_there else ""
    words = f"stored {counted(report.runs, 'run')} and {counted(report.events, 'event')}{there}"
    echo_rows([(report, words)], as_json=as_json)


def _transfer_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Its lines, none of which is longer than one that `export` writes. Raises UsageError."""
    from proctor.supervisor.store.records import MAX_BYTES

    most = MAX_BYTES + len(b'{"event":}\n')
    try:
        while line := file.readline(most + 1):
            if len(line) > most:
                raise UsageError(
                    f"a line is longer than {most} bytes, which no event is; `proctor export` writes none"
                )
            yield line
    except OSError as error:
        raise UsageError(f"cannot be read: {os_words(error)}") from None

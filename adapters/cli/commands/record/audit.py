"""`proctor audit`: whether a record is what was written, and whether all of it is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...common import json_option, store_option, write_document
from ...exits import FINE, VIOLATED
from ...moments import counted
from ...output_file import output_option, output_parameter, written_to
from ...terminal.output import say, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proctor.adapters.stores.audit.auditing import AuditReport

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("audit")
def audit() -> None:
    """Check a store against what was written into it.

    Each record has a digest over the one before in its session. `head` prints where each session ends, to be
    kept elsewhere; `verify` reads every record, and checks the store against heads that were kept.
    """


@audit.command("head", short_help="Print where each session's record ends.")
@store_option
@click.option("--sign", "key", type=_FILE, metavar="KEY", help="Sign them with this Ed25519 private key (PEM).")
@output_parameter
@click.option("--json", is_flag=True, expose_value=False, help="What is printed is JSON in any case.")
def head(store: str | None, key: Path | None, output: str | None) -> int:
    """Print where each session's record ends, as one line of JSON, to be kept where nobody here can write."""
    from proctor.adapters.stores.audit.auditing import audited
    from proctor.adapters.stores.audit.heads import encode
    from proctor.adapters.stores.audit.signing import signed

    from ...store_place import store_named

    report = audited(store_named(store))
    if report.findings:
        _tell(report)
        return VIOLATED
    heads = report.heads if key is None else signed(report.heads, key)
    with written_to(output):
        write_document(encode(heads).decode())
    return FINE


@audit.command("verify", short_help="Read every record and hold it to what was written.")
@store_option
@click.option("--anchor", type=_FILE, metavar="FILE", help="What `audit head` printed before.")
@click.option("--key", type=_FILE, metavar="KEY", help="The public key (PEM) that the anchor must be signed with.")
@output_option
@json_option
def verify(store: str | None, anchor: Path | None, key: Path | None, as_json: bool) -> int:
    """Check that every record is as it was written, and that none is missing. The store is not changed.

    Exit codes: 0 both hold, 1 one does not, 2 no store or no anchor there, 3 the store cannot be read.
    """
    from proctor.adapters.stores.audit.auditing import audited
    from proctor.adapters.stores.audit.heads import read_heads
    from proctor.adapters.stores.audit.signing import check_signature

    from ...store_place import store_named

    if key is not None and anchor is None:
        raise click.UsageError("`--key` is for the signature of an `--anchor`")
    kept = None if anchor is None else read_heads(anchor)
    if kept is not None and key is not None:
        check_signature(kept, key)
    report = audited(store_named(store), kept)
    if as_json:
        say_json({"type": "audit", "signed": key is not None, **_data(report)})
    else:
        _tell(report)
    return FINE if report.intact and report.complete else VIOLATED


def _data(report: AuditReport) -> dict[str, object]:
    import msgspec

    data: dict[str, object] = msgspec.to_builtins(report)
    return data


def _tell(report: AuditReport) -> None:
    for line in _lines(report):
        say(line)


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
    held = (
        "no heads were given to hold it to"
        if report.anchored is None
        else f"held to {counted(report.anchored, 'head')}"
    )
    sessions = counted(len(report.heads.sessions), "session")
    yield f"{counted(report.records, 'record')} in {sessions}; {held}"
    yield f"integrity: {'every record is what was written' if report.intact else 'NOT INTACT'}"
    yield f"completeness: {'nothing is missing' if report.complete else 'NOT COMPLETE'}"

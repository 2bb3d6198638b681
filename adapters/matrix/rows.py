"""One row of the matrix for each adapter."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proctor.policies.events.run_context import Capabilities

from .evidence import Shown, read_record, settled
from .subjects import SUBJECTS, AdapterSubject


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter with what it can do; `shown` names the capabilities that the suite saw to be so."""

    subject: AdapterSubject
    declared: Capabilities
    shown: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """How far a refusal gets there: `prevented`, or only `interrupted` for what is not asked about."""
        return {"all": "prevented", "some": "prevented or interrupted", "none": "interrupted"}[self.declared.gate]


def matrix(record: Mapping[str, Shown] | None = None) -> list[Row]:
    """Every adapter of which something is known; the same wherever it is asked for."""
    records = read_record() if record is None else record
    rows = (_row(subject, records.get(subject.name)) for subject in SUBJECTS)
    return [row for row in rows if row is not None]


def _row(subject: AdapterSubject, kept: Shown | None) -> Row | None:
    if kept is not None:
        return Row(subject=subject, declared=kept.declared, shown=kept.shown)
    if subject.acp is None:
        return None
    from ..agents.acp import AcpAdapter

    return Row(subject=subject, declared=settled(AcpAdapter([subject.acp]).capabilities))

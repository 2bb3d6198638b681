"""Which runs a list is asked for."""

from __future__ import annotations

from ..ports.adapters import RunFilter, RunInfo
from ..ports.orders import label_text


def meets(run: RunInfo, where: RunFilter) -> bool:
    """Whether a run meets all that is given."""
    began = run.started_at or run.created_at
    return (
        (not where.status or run.status in where.status)
        and where.tenant in (None, run.tenant)
        and where.provider in (None, run.provider)
        and run.run_id.startswith(where.begins)
        and all(name in run.labels and label_text(run.labels[name]) == text for name, text in where.labels.items())
        and (where.since is None or (began is not None and began >= where.since))
        and (where.until is None or (began is not None and began < where.until))
    )

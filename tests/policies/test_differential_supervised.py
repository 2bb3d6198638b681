"""Whole supervised sessions against the naive reading: live, restored from snapshots and folded from the record."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from reference.whole_sessions import KINDS, judged_alike

few = settings(max_examples=4, suppress_health_check=list(HealthCheck), deadline=None)


@pytest.mark.parametrize("kind", KINDS)
def test_supervised_sessions_are_judged_as_their_text_says(kind: str) -> None:
    """Ids used again, late and expired approvals, rewritten inputs and resumed sessions agree at every step.

    A longer run is `python -m tests.fuzz sessions`.
    """
    judged_alike(kind, few)

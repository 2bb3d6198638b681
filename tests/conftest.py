"""Keeps what the conformance suite shows of each adapter: the matrix of the documentation is made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest

from proctor.adapters.matrix import Shown, read_record, write_record
from proctor.adapters.matrix.record import settled
from proctor.supervisor.testing.adapter_checks import AdapterChecks

WRITE = os.environ.get("PROCTOR_MATRIX") == "write"


@pytest.fixture(autouse=True)
def row_of_the_matrix(request: pytest.FixtureRequest) -> Iterator[None]:
    """A suite with a `row` has shown what the record says of it; PROCTOR_MATRIX=write keeps it as the record."""
    yield
    suite = request.instance
    if not isinstance(suite, AdapterChecks) or suite.row is None or suite.shown is None or suite.declared is None:
        return
    seen = tuple(sorted(name for name, value in msgspec.structs.asdict(suite.shown).items() if value is not None))
    kept = Shown(declared=settled(suite.declared), shown=seen)
    if WRITE:
        write_record(suite.row, kept)
    assert read_record().get(suite.row) == kept, "the record differs: PROCTOR_MATRIX=write pytest tests/adapters"

"""What each adapter can do: said by its capabilities, shown by the conformance suite."""

from .evidence import Shown, read_record, write_record
from .installed import missing
from .rows import Row, matrix
from .tables import markdown

__all__ = ["Row", "Shown", "markdown", "matrix", "missing", "read_record", "write_record"]

ROOMS = (
    "__main__",
    "installed",
    "page",
    "tables",
    "rows",
    "evidence",
)
"""Top first: each imports only those below it."""

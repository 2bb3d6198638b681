"""What each adapter can do: said by its capabilities, shown by the conformance suite."""

from .evidence import Shown, read_record, write_record
from .installed import missing
from .rows import Row, matrix
from .tables import markdown

__all__ = ["Row", "Shown", "markdown", "matrix", "missing", "read_record", "write_record"]

ROOMS = (
    "__main__",  # writes it there
    "installed",  # which of them can be used here
    "page",  # the table in the documentation, between its markers
    "tables",  # rows -> Markdown, rows -> lines
    "rows",  # one row for each adapter
    "evidence",  # what the suite has shown, as it is kept in `record.yaml`
    "subjects",  # the adapters by name: what each needs
)
"""Top first: each imports only those below it."""

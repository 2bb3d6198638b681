"""What each adapter can do: said by its capabilities, shown by the conformance suite.

subjects    the adapters by name: what each needs
hooked      what hooks can do
record      what the suite has shown, as it is kept in `record.yaml`
rows        one row for each adapter
installed   which of them can be used here
tables      rows -> Markdown, rows -> lines
page        the table in the documentation, between its markers
__main__    writes it there
"""

from .installed import missing
from .record import Shown, read_record, write_record
from .rows import Row, matrix
from .tables import markdown

__all__ = ["Row", "Shown", "markdown", "matrix", "missing", "read_record", "write_record"]

"""The table in a page of the documentation, between its markers."""

from __future__ import annotations

from proctor.supervisor.errors import UsageError

BEGIN = "<!-- matrix: written by python -m proctor.adapters.matrix -->"
END = "<!-- end of matrix -->"


def replaced(page: str, table: str) -> str:
    """The page with another table. Raises UsageError for a page without both markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page has no place for the table; it goes between `{BEGIN}` and `{END}`")
    return f"{before}{BEGIN}\n{table}{END}{after}"

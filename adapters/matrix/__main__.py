"""Write the matrix into a page of the documentation: `python -m proctor.adapters.matrix docs/agents/index.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from .page import replaced
from .rows import matrix
from .tables import markdown


def main(arguments: list[str]) -> None:
    """Write the table into the page that is named, or print it."""
    if not arguments:
        print(markdown(matrix()), end="")
        return
    page = Path(arguments[0])
    page.write_text(replaced(page.read_text(), markdown(matrix())))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What is imported of stores, and when."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_but_a_postgres_store_imports_its_driver() -> None:
    """Not the supervisor, not the stores, not the command line."""
    code = (
        "import sys, proctor, proctor.supervisor, proctor.adapters, proctor.adapters.cli, proctor.adapters.stores;"
        "from proctor.adapters.stores import SQLiteStore; SQLiteStore;"
        "print([name for name in sys.modules if name.startswith(('psycopg', 'proctor.adapters.stores.postgres'))])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"

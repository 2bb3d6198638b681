"""What is imported of stores, and when."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path


def test_nothing_but_a_postgres_store_imports_its_driver() -> None:
    """Not the supervisor, not the stores, not the command line."""
    code = (
        "import sys, proctor, proctor.supervisor, proctor.adapters, proctor.adapters.cli, proctor.adapters.stores;"
        "from proctor.adapters.stores import SQLiteStore; SQLiteStore;"
        "print([name for name in sys.modules if name.startswith(('psycopg', 'proctor.adapters.stores.postgres'))])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"


def test_a_run_on_one_machine_without_budgets_pays_nothing_for_fleets_and_budgets(tmp_path: Path) -> None:
    """It imports no part of them, asks its store nothing of them, and leaves no row of them."""
    code = """
import sys
from collections import Counter
import anyio
from proctor.adapters import ScriptedAdapter
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.supervisor import run_once

COUNTS = Counter()


class Counted(SQLiteStore):
    def __getattribute__(self, name):
        if not name.startswith("_"):
            COUNTS[name] += 1
        return super().__getattribute__(name)


async def main():
    script = {"steps": [{"usage": {"cost_usd": 0.1}}, {"call": "bash", "input": {"command": "true"}}]}
    async with Counted(sys.argv[1]) as store:
        await run_once(ScriptedAdapter(script), "go", policies=parse_policies("name: p"), store=store)


anyio.run(main)
parts = ("psycopg", "asyncpg", "ray", "proctor.adapters.fleet", "proctor.adapters.stores.postgres")
print([name for name in sys.modules if name.split(".")[0] in parts or name.startswith(parts[3:])])
print([name for name in ("reserve", "settle", "budgets", "claim_run") if COUNTS[name]])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "runs.db")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n[]\n"
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        tables = ("budgets", "budget_parts", "budget_shares")
        assert [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in tables] == [(0,)] * 3
        assert connection.execute("SELECT run_id IS NOT NULL, attempts FROM runs").fetchall() == [(1, 0)]

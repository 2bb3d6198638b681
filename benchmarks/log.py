"""Every full run is noted, one line each, so that figures can be compared over time."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import psutil

from .rows import Row

LOG = Path(__file__).parent / "history.jsonl"


def noted(results: Mapping[str, list[Row]]) -> None:
    """Append the figures of a run, with the Python and the kind of machine."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": machine(),
        "figures": {name: {row.work: round(row.figure, 4) for row in rows} for name, rows in results.items()},
    }
    with LOG.open("ab") as log:
        log.write(msgspec.json.encode(line) + b"\n")


def machine() -> dict[str, Any]:
    """What kind of machine this is, and how busy it was; nothing that names it."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "load": round(os.getloadavg()[0], 1),
    }


def circumstances() -> str:
    """When, where and how undisturbed, in one line."""
    where = machine()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {where['system']} "
        f"{where['architecture']}, {where['cpus']} processors, load {where['load']}"
    )

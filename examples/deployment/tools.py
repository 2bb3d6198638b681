"""A deployment pipeline."""

from __future__ import annotations

from typing import Any


def backup() -> str:
    """Keep what is there."""
    return "kept"


def run_tests() -> dict[str, Any]:
    """All green."""
    return {"all_passed": True}


def deploy() -> str:
    """Put it out."""
    return "deployed"


def verify() -> str:
    """Look at it."""
    return "healthy"


def drop_database() -> str:
    """Never to be called."""
    return "gone"


def rollback() -> str:
    """Back to the backup."""
    return "rolled back"


TOOLS = {f.__name__: f for f in (backup, run_tests, deploy, verify, drop_database, rollback)}

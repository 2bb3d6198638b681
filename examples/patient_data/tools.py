"""A practice's record system."""

from __future__ import annotations

from typing import Any


def verify_identity(name: str) -> dict[str, Any]:
    """Who is calling."""
    return {"verified": True, "patient_id": {"Ana": 7, "Ben": 8}.get(name)}


def get_patient_record(patient_id: int, fields: list[str] | None = None) -> dict[str, Any]:
    """A record."""
    return {"patient_id": patient_id, "fields": fields or []}


def log_access(patient_id: int) -> str:
    """Note who read what."""
    return "logged"


TOOLS = {f.__name__: f for f in (verify_identity, get_patient_record, log_access)}

"""What a check of written text finds wrong, and where."""

from __future__ import annotations

from typing import TypeAlias

Where: TypeAlias = tuple[str | int, ...]
"""A place within a record: field names and list positions."""
Complaint: TypeAlias = tuple[Where, str]
"""What is wrong, and where."""

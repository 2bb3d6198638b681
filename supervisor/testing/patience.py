"""How long a test waits, even on a busy machine, before it counts as hanging."""

from typing import Final

PATIENCE_S: Final = 120
"""Seconds. Nothing that works comes near it: it is no measure of speed."""

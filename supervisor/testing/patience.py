"""How long a test waits for what should happen soon before it counts as hanging, on a busy machine too."""

from typing import Final

PATIENCE_S: Final = 120
"""Seconds. Nothing that works comes near it: it is no measure of speed."""

"""Fixtures for Amp: the stand-in and the real client."""

from amp_bench import amp, bench, touch
from claude_bench import anyio_backend

__all__ = ["amp", "anyio_backend", "bench", "touch"]

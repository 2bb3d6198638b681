"""The stand-in and the real Amp client, for the tests of what must hold against attacks."""

from amp_bench import amp, bench, touch
from claude_bench import anyio_backend

__all__ = ["amp", "anyio_backend", "bench", "touch"]

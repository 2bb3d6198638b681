"""The stand-in and the real client, for the tests of this folder."""

from amp_bench import amp, bench, touch
from claude_bench import anyio_backend

__all__ = ["amp", "anyio_backend", "bench", "touch"]

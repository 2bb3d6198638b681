"""The stand-in and the real Amp client, for the tests of what must hold against attacks."""

from amp_bench import amp, anyio_backend, bench, touch

__all__ = ["amp", "anyio_backend", "bench", "touch"]

"""The stand-in and the real client, for the tests of this folder."""

from amp_bench import amp, anyio_backend, bench, touch

__all__ = ["amp", "anyio_backend", "bench", "touch"]

"""The stand-in and the real client, for the tests of this folder."""

from amp_bench import amp, bench, touch

__all__ = ["amp", "bench", "touch"]

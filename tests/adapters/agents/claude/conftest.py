"""The adapter before the real client, for the tests of this folder."""

from claude_bench import anyio_backend, bench

__all__ = ["anyio_backend", "bench"]

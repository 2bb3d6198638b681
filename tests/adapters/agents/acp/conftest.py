"""The scripted agent and the real ones, for the tests of this folder."""

from acp_bench import anyio_backend, bench, model_api, scripts, touch

__all__ = ["anyio_backend", "bench", "model_api", "scripts", "touch"]

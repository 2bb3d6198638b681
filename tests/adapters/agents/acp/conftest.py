"""Fixtures for ACP agents: the scripted agent and the real ones."""

from acp_bench import anyio_backend, bench, model_api, scripts, touch

__all__ = ["anyio_backend", "bench", "model_api", "scripts", "touch"]

"""Fixtures for Codex: the adapter with the real client."""

from claude_bench import anyio_backend, pipe
from codex_bench import api, bench, client_installed, patient, stand_in, used_home

__all__ = ["anyio_backend", "api", "bench", "client_installed", "patient", "pipe", "stand_in", "used_home"]

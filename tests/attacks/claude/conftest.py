"""Fixtures for attack tests on Claude Code: the real client with a scripted API."""

from claude_bench import anyio_backend, bench
from messages_api import api, claude, client_installed, hermetic

__all__ = ["anyio_backend", "api", "bench", "claude", "client_installed", "hermetic"]

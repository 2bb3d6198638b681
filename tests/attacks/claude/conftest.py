"""The real Claude Code client before a scripted API, for the tests of what must hold against attacks."""

from claude_bench import anyio_backend, bench
from messages_api import api, claude, client_installed, hermetic

__all__ = ["anyio_backend", "api", "bench", "claude", "client_installed", "hermetic"]

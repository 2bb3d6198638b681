"""The scripted Messages API and the real Claude Code client before it, for the tests that play a page with it."""

from messages_api import api, claude, client_installed, hermetic

__all__ = ["api", "claude", "client_installed", "hermetic"]

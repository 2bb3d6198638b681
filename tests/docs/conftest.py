"""Fixtures for pages: the scripted Messages API and the real Claude Code client."""

from messages_api import api, claude, client_installed, hermetic

__all__ = ["api", "claude", "client_installed", "hermetic"]

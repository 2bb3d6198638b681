"""A class of tests that runs on one backend, where others show what the second could change."""

from __future__ import annotations

import pytest


class OnAsyncio:
    """On asyncio."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        """The one backend."""
        return "asyncio"

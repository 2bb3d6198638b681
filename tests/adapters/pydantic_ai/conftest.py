"""What the tests of the pydantic-ai adapter share."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The framework runs on asyncio only."""
    return "asyncio"

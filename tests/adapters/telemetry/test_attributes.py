"""What spans say of an agent."""

from __future__ import annotations

import pytest

from proctor.adapters.agents.catalog import ADAPTERS
from proctor.adapters.telemetry import attributes
from proctor.adapters.telemetry.attributes import of_agent


@pytest.mark.parametrize(
    ("adapter", "provider"), [("claude", "anthropic"), ("codex", "openai"), ("openai-agents", "openai")]
)
def test_an_adapter_whose_models_are_one_providers_goes_by_its_name(adapter: str, provider: str) -> None:
    """The adapters are called as they are made."""
    assert adapter in ADAPTERS
    assert of_agent(adapter, None)[attributes.PROVIDER] == provider

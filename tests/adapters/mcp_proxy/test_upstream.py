"""How a server is named in the record."""

from __future__ import annotations

import pytest

from proctor.adapters.mcp_proxy.downstream import UrlUpstream


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("https://host/mcp", "https://host/mcp"),
        ("https://ana:secret@host:8443/mcp", "https://host:8443/mcp"),
        ("https://token@host/mcp?key=secret#secret", "https://host/mcp"),
        ("http://a@b:c@[::1]:80/", "http://[::1]:80/"),
    ],
)
def test_an_address_is_recorded_without_its_secrets(url: str, label: str) -> None:
    """Neither who asks, nor the query, nor the fragment."""
    assert UrlUpstream(url).label == label

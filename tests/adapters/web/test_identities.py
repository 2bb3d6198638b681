"""Files of tokens whose roles are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.adapters.operations.identities import read_tokens
from proctor.supervisor.errors import UsageError


def test_an_unknown_role_is_named_with_those_there_are(tmp_path: Path) -> None:
    """As it is written."""
    file = tmp_path / "tokens.yaml"
    file.write_text("tokens: [{name: a, token: 0123456789abcdef0123, roles: [see, Explode]}]")
    file.chmod(0o600)

    with pytest.raises(UsageError, match=r"unknown role 'Explode'.*; a role is one of see, answer, stop"):
        read_tokens(str(file))

"""Policies, and what the tests of the supervisor share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies.limits import Limits
from proctor.policies.policy import Deny, Policy


@pytest.fixture
def denying() -> Callable[..., Policy]:
    """Make a policy that objects to `bash` with an action."""

    def make(action: Any, **more: Any) -> Policy:
        return Policy(name="p", tool_rules=(Deny(("bash",)),), on_violation=action, **more)

    return make


@pytest.fixture
def permissive() -> Policy:
    """A policy that objects to nothing."""
    return Policy(name="open", limits=Limits(max_tool_calls=1000))

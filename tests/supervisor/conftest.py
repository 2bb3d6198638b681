"""Policies, and what the tests of the supervisor share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import proctor.policies
from proctor.policies.model import Deny, Limits, Policy


class _Findings(tuple[Any, ...]):
    def check(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _until_preflight_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.policies.compiled import compile_policy
    from proctor.policies.merge import merge_policies

    for name, value in (
        ("preflight", lambda *_: _Findings()),
        ("compile_policy", compile_policy),
        ("merge_policies", merge_policies),
    ):
        if not callable(getattr(proctor.policies, name, None)):
            monkeypatch.setattr(proctor.policies, name, value, raising=False)


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

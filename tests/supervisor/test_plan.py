"""A policy that can never work does not start anything."""

from __future__ import annotations

import pytest

from proctor.policies.errors import PolicyViolationError
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, run_once
from proctor.supervisor.testing import FakeAdapter

pytestmark = pytest.mark.anyio


async def test_what_preflight_refuses_never_calls_the_adapter_and_leaves_no_run() -> None:
    """Refused with code policy_violation, with the findings."""
    adapter, store = FakeAdapter(), MemoryStore()
    policy = Policy(name="p", limits=Limits(max_total_tokens=0))
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=[policy], store=store)

    assert raised.value.code == "policy_violation"
    assert raised.value.findings
    assert (adapter.compiled, adapter.launches) == (0, [])
    assert await store.runs() == []

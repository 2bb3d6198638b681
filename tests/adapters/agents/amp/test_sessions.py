"""A thread that the client does not have, as the stand-in and the real client say it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import anyio
import loopback
import pytest

from proctor.adapters.agents.amp.adapter import AmpAdapter
from proctor.policies.events import ErrorOccurred, MessageReceived, SessionStarted
from proctor.policies.limits import Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, run_once
from proctor.supervisor.errors import ProviderError, UnknownSessionError
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio
ONCE = pytest.mark.parametrize("anyio_backend", ["asyncio"])
THREAD = "T-11111111-2222-4333-8444-555555555555"


@pytest.fixture
def amps_servers() -> Iterator[str]:
    """Servers without any thread."""
    server = loopback.Server(
        lambda request: request.give({"ok": False, "error": {"code": "thread-not-found"}}, status=404)
    )
    yield server.url
    server.close()


async def test_a_thread_that_is_gone_is_replayed_to_a_new_one(bench: Any) -> None:
    """The prompt comes after the conversation so far."""
    store, policy = MemoryStore(), Policy(name="p", limits=Limits(max_tool_calls=5))
    earlier = [SessionStarted(provider_session_id=THREAD), MessageReceived(content="I keep it in mind")]
    await run_once(FakeAdapter(earlier, name="amp"), "remember 7", policies=[policy], store=store, session_id="s")
    with anyio.fail_after(PATIENCE_S):
        result = await run_once(bench.adapter(), "which?", policies=[policy], store=store, session_id="s")

    started = bench.started_with()
    assert (result.status, result.output) == ("completed", "end")
    assert "threads" not in started["arguments"]
    assert (
        started["prompt"].index("remember 7")
        < started["prompt"].index("I keep it in mind")
        < started["prompt"].index("which?")
    )
    assert [event.code for event in result.events if isinstance(event, ErrorOccurred)] == ["unknown_session"]


@ONCE
async def test_the_real_client_says_that_it_has_no_such_thread(amp: str, bench: Any, amps_servers: str) -> None:
    """Before it begins, on its standard error."""
    with pytest.raises(UnknownSessionError, match=THREAD):
        await opened(amp, bench, amps_servers)


@ONCE
async def test_the_real_client_that_reaches_nobody_may_have_the_thread(amp: str, bench: Any) -> None:
    """That is another failure, and nothing is begun anew."""
    with pytest.raises(ProviderError) as caught:
        await opened(amp, bench, "http://127.0.0.1:9")

    assert not isinstance(caught.value, UnknownSessionError)


async def opened(amp: str, bench: Any, url: str) -> None:
    """The real client, taking up a thread of the servers at that address."""
    env = {"PATH": os.environ["PATH"], "HOME": str(bench.home), "AMP_API_KEY": "none", "AMP_URL": url}
    done = await bench.run(AmpAdapter(amp_path=amp, cwd=bench.cwd, env=env), resume=THREAD)
    raise done.error

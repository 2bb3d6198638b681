"""The proxy's gate: a denied call never reaches the server, and an allowed one is recorded first."""

import itertools
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest
from answering import answered_by_a_process
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest
from stored_rows import once

from proctor.adapters.mcp_proxy.relay import UNANSWERED, WITHDRAWN, Relay, SharedByConnections
from proctor.adapters.mcp_proxy.tools import Naming, Visibility
from proctor.policies.events import Event
from proctor.policies.events.calls import ToolCall
from proctor.supervisor import StoreError, pending
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing import FaultyStore

pytestmark = pytest.mark.anyio


async def test_a_call_is_recorded_before_it_runs(bench: Any) -> None:
    """While the server handles a call, its start is in the store, with its input."""
    target = bench.dir / "started"
    async with bench.proxied("{name: p}") as proxied, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(proxied.call, "hang", path=str(target)))
        while not target.exists():
            await anyio.sleep(0.01)
        [started] = await proxied.events("tool_call_started")
        tasks.cancel_scope.cancel()

    assert started.tool_name == "hang"
    assert started.tool_input == {"path": str(target)}


async def test_parallel_calls_share_one_budget(bench: Any) -> None:
    """Of eight concurrent calls and a limit of three, three run."""
    policy = "{name: p, limits: {max_tool_calls: {max: 3, action: deny}}}"
    async with bench.proxied(policy) as proxied, anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(partial(proxied.call, "write", path=str(bench.dir / f"out-{n}")))

    assert len(list(bench.dir.glob("out-*"))) == 3


async def test_a_tool_that_fails_is_recorded_as_failed_and_passed_on_unchanged(bench: Any) -> None:
    """The client gets the server's own error, and a rule that needs success is not satisfied."""
    policy = "{name: p, on_violation: deny, rules: [{type: before, first: fail, then: add}]}"
    async with bench.proxied(policy) as proxied:
        is_error, text = await proxied.outcome("fail")
        after, _ = await proxied.outcome("add", a=1, b=1)
        [failed] = await proxied.events("tool_call_failed")

    assert is_error
    assert "it does not work" in text
    assert "it does not work" in failed.error
    assert after


async def test_another_process_approves_a_pending_call(bench: Any) -> None:
    """The call runs after the answer arrived through the store's file, and not before."""
    target = bench.dir / "approved"
    policy = "{name: p, tool_rules: [{deny: [write], action: request_approval}]}"
    existed = True
    async with bench.sqlite() as store:
        async with bench.proxied(policy, store=store) as proxied, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(proxied.call, "write", path=str(target), text="x"))
            waiting = await once(store, pending)
            existed = target.exists()
            assert await answered_by_a_process(store.path, waiting[0].approval_id, "ana") == "counts"
        granted = [
            event async for event in store.read(waiting[0].session_id) if event.type == "tool_approval_granted"
        ]

    assert not existed
    assert target.read_text() == "x"
    assert [event.by for event in granted] == ["ana"]


async def test_a_pending_call_that_the_client_cancels_does_not_run(bench: Any) -> None:
    """It is withdrawn from the gate, and a later answer has no effect."""
    target = bench.dir / "withdrawn"
    policy = "{name: p, tool_rules: [{deny: [write], action: request_approval}]}"
    async with bench.proxied(policy) as proxied:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(proxied.call, "write", path=str(target)))
            while not await pending(proxied.store):
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        await proxied.call("add", a=1, b=1)
        denied = [event.decision for event in await proxied.events("tool_call_denied")]

    assert denied == ["withdrawn"]
    assert not target.exists()


class Relaying:
    """A relay with nobody behind it: what a client sends it, what it would pass on to a server, what it reported."""

    def __init__(self, allowed: anyio.Event) -> None:
        self._allowed = allowed
        self.reported: list[Event] = []
        self._to_proxy, self._from_client = anyio.create_memory_object_stream[Any](1)
        self._to_server, self._from_proxy = anyio.create_memory_object_stream[Any](20)
        self._nobody, self._nothing = anyio.create_memory_object_stream[Any](1)
        ids = (f"call-{n}" for n in itertools.count())
        shared = SharedByConnections(
            gate=self._gate,
            report=self._report,
            naming=Naming(),
            visibility=Visibility(list),
            new_id=lambda: next(ids),
            warn=print,
        )
        self.relay = Relay(shared, (self._from_client, self._nobody), (self._nothing, self._to_server))

    async def _gate(self, call: ToolCall) -> GateAnswer:
        await self._allowed.wait()
        return GateAnswer(allowed=True)

    async def _report(self, event: Event) -> None:
        self.reported.append(event)

    async def send(self, message: JSONRPCRequest | JSONRPCNotification) -> None:
        await self._to_proxy.send(SessionMessage(message))
        await anyio.wait_all_tasks_blocked()

    @property
    def passed_on(self) -> int:
        return self._from_proxy.statistics().current_buffer_used

    @property
    def pending(self) -> list[Any]:
        return [request.id for request in self.relay._pending]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ends = (self._to_proxy, self._from_client, self._to_server, self._from_proxy, self._nobody, self._nothing)
        with ExitStack() as stack:
            for end in ends:
                stack.enter_context(end)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.relay.run)
                yield
                tasks.cancel_scope.cancel()


def request_of(id: int, method: str = "tools/call") -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=id, method=method, params={"name": "write"})


def cancel_of(id: int) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": id})


async def test_a_call_that_is_cancelled_as_it_is_allowed_does_not_run_and_has_failed() -> None:
    """Otherwise it would count as running until the connection closes: the gate started it, and the server never gets
    it.
    """
    allowed = anyio.Event()
    relaying = Relaying(allowed)
    async with relaying.running():
        await relaying.send(request_of(1))
        allowed.set()
        await relaying.relay._withdrawn(cancel_of(1))
        await anyio.wait_all_tasks_blocked()
        passed_on, pending = relaying.passed_on, relaying.pending

    assert (passed_on, pending) == (0, [])
    failed = [(event.type, getattr(event, "error", None)) for event in relaying.reported]
    assert failed == [("tool_call_failed", WITHDRAWN)]


@pytest.mark.parametrize("method", ["tools/call", "resources/read"])
async def test_requests_that_were_cancelled_and_never_answered_are_forgotten(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most servers answer none, and a client may stay connected for months. A call has failed then."""
    monkeypatch.setattr("proctor.adapters.mcp_proxy.relay._MOST_WITHDRAWN", 2)
    allowed = anyio.Event()
    allowed.set()
    relaying = Relaying(allowed)
    async with relaying.running():
        for id in range(4):
            await relaying.send(request_of(id, method))
            await relaying.send(cancel_of(id))
        pending = relaying.pending
        failed = [(getattr(event, "tool_call_id", ""), getattr(event, "error", "")) for event in relaying.reported]

    assert pending == [2, 3]
    assert failed == ([("call-0", UNANSWERED), ("call-1", UNANSWERED)] if method == "tools/call" else [])


async def test_a_store_that_cannot_be_written_denies(bench: Any) -> None:
    """No event, no call: the file is not written, and the proxy ends with the store's error."""
    target = bench.dir / "never"
    store = FaultyStore(fails_at=2, stays_broken=True)
    async with bench.proxied("{name: p}", store=store) as proxied:
        is_error, _ = await proxied.outcome("write", path=str(target))

    assert is_error
    assert not target.exists()
    assert isinstance(bench.error, StoreError)


async def test_a_call_as_a_task_is_denied(bench: Any) -> None:
    """A task would be answered before its work is done, so its result would be no evidence."""
    from mcp import MCPError
    from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

    params = CallToolRequestParams.model_validate({"name": "add", "arguments": {"a": 1, "b": 2}, "task": {"ttl": 1}})
    async with bench.proxied("{name: p}") as proxied:
        with pytest.raises(MCPError, match="task"):
            await proxied.client.session.send_request(CallToolRequest(params=params), CallToolResult)

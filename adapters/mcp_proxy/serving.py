"""`proctor mcp`: one proxy process is one run."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio
import msgspec

from proctor.policies.policy import Policy
from proctor.policies.stream.calls import RunContext
from proctor.supervisor.api.handle import RunHandle
from proctor.supervisor.api.supervisor import Supervisor
from proctor.supervisor.errors import UsageError
from proctor.supervisor.launch.launch import new_id
from proctor.supervisor.ports.adapters import Store

from ..kit.uncountable_limits import USAGE, uncounted
from .adapter import McpProxyAdapter
from .downstream.connections import Downstream
from .names import Naming, trusts, with_annotations
from .upstream import Upstream, offered_tools

NOT_COUNTED = USAGE | {"max_turns"}
NO_USAGE = "MCP tells a server nothing of tokens, cost or turns"


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What one proxy serves, to whom, and under which policies.

    `trust_annotations` has every policy believe the server's annotations; without it only those do whose
    `metadata.trusted_servers` names `server`.
    """

    upstream: Upstream
    downstream: Downstream
    policies: Sequence[Policy]
    context: RunContext | None = None
    server: str | None = None
    trust_annotations: bool = False


async def serve(store: Store, serving: Serving, *, warn: Callable[[str], None]) -> None:
    """Serve until the clients have gone, a signal comes, or a policy ends the run.

    Raises PolicyViolationError, ProviderError, StoreError, UsageError.
    """
    _check_name(serving.server)
    for line in uncounted(serving.policies, NOT_COUNTED, why=NO_USAGE):
        warn(line)
    policies, offered = await _believing(serving)
    adapter = McpProxyAdapter(serving.upstream, serving.downstream, server=serving.server, offered=offered, warn=warn)
    async with Supervisor(store) as supervisor:
        metadata = {"upstream": serving.upstream.label, "server": serving.server}
        handle = await supervisor.start(adapter, "", policies=policies, context=serving.context, metadata=metadata)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, handle)
            await handle.wait_finished()
            tasks.cancel_scope.cancel()
    result = await handle.wait()
    if result.status == "cancelled":
        warn(f"run `{result.run_id}` was cancelled")


async def _believing(serving: Serving) -> tuple[list[Policy], frozenset[str] | None]:
    """The policies with the annotations each believes, and what was offered when they were read."""
    trusted = [serving.trust_annotations or trusts(policy, serving.server) for policy in serving.policies]
    if not any(trusted):
        return list(serving.policies), None
    naming = Naming(serving.server)
    tools = await offered_tools(serving.upstream, new_id("run"))
    policies = [
        with_annotations([policy], tools, naming)[0] if believes else policy
        for policy, believes in zip(serving.policies, trusted, strict=True)
    ]
    return policies, frozenset(naming.judged(str(tool.get("name"))) for tool in tools)


def _check_name(server: str | None) -> None:
    if server is not None and (not server or "__" in server or any(sign in server for sign in "*?[] \n")):
        raise UsageError(f"server name `{server}` cannot stand in a tool's name; use letters, digits, `-` and `_`")


async def _end_on_signal(handle: RunHandle) -> None:
    wanted = (signal.SIGINT, signal.SIGTERM)
    with suppress(NotImplementedError), anyio.open_signal_receiver(*wanted) as signals:
        async for number in signals:
            await handle.cancel(reason=f"the proxy got {signal.Signals(number).name}")
            return

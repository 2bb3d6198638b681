"""A Ray cluster on this machine with a fleet, in its own process; RAY_TMPDIR is its folder.

It reads commands as lines of JSON and answers each with one, so that the test process does not import Ray.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import msgspec

from proctor.supervisor.testing.fakes import PATIENCE_S

ADDRESS = "127.0.0.2"
"""A loopback address that Ray, unlike 127.0.0.1, does not replace by another name of the machine."""
NODE: dict[str, Any] = {
    **{"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": ADDRESS},
    **{"include_log_monitor": False, "no_monitor": True},  # nobody reads logs or scales the cluster
}
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 5,
    "gcs_rpc_server_reconnect_timeout_s": 5,
}


async def main() -> None:
    """Answer until there are no more commands."""
    from ray.cluster_utils import Cluster

    from proctor.adapters.fleet import Fleet
    from proctor.adapters.fleet.placement import Placement

    cluster: Any = Cluster()  # untyped
    add_node(cluster, include_dashboard=False, _system_config=HEALTH)
    add_node(cluster)
    joined = Placement("", cluster.address)
    tell({"address": cluster.address, "token": os.environ["RAY_AUTH_TOKEN"]})
    for line in sys.stdin:
        do, store, name, more = json.loads(line)
        try:
            if do.startswith("lose"):
                joined.disconnect()
            if do == "lose_node":
                (other,) = cluster.worker_nodes
                lost = other.node_id
                cluster.remove_node(other, allow_graceful=False)
                tell(lost)
            elif do == "lose_head":
                cluster.remove_node(cluster.head_node, allow_graceful=False)
                tell(None)
            else:
                joined.connect()  # once: joining and leaving for each command takes longer than the command
                async with Fleet(store, name=name, address=cluster.address) as fleet:
                    tell(msgspec.to_builtins(await getattr(fleet, do)(**more)))
        except Exception as error:  # passed to the test
            tell({"error": f"{type(error).__name__}: {error}"})
    joined.disconnect()
    if cluster.head_node is not None:
        cluster.shutdown()


def add_node(cluster: Any, **more: Any) -> None:
    """Add a node; returns once it is there. Ray itself waits only half a minute, and a busy machine may take that
    long.
    """
    cluster._wait_for_node(cluster.add_node(wait=False, **NODE, **more), timeout=PATIENCE_S)


def tell(answer: Any) -> None:
    """Write one line that differs from all other output of Ray."""
    OUTPUT.write(json.dumps({"answer": answer}) + "\n")
    OUTPUT.flush()


if __name__ == "__main__":
    OUTPUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    anyio.run(main)

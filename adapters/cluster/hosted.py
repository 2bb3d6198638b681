"""A worker in a thread of a Ray actor. Ray starts the actor again where its process or its node dies; the runs it had
are lost then, and gone on with by whoever takes them.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, Final

import anyio

from proctor.adapters.stores.store_names import open_store
from proctor.supervisor.log import logger

from .worker import Worker

NAMESPACE: Final = "proctor"
"""Of workers, and what is kept about them, on a cluster."""
RETRY_S: Final = 5.0
"""How long to wait before a store is opened again that could not be opened or went away."""


class HostedWorker:
    """What a Ray actor is made of: calls answer at once, the worker goes on in a thread of its own.

    Args:
        store: the store's URL or path, the same for every worker.
        max_running: how many runs go on here at once.
    """

    def __init__(self, store: str, max_running: int) -> None:
        self._place = store
        self._worker: Worker | None = None
        self._max_running = max_running
        self._draining = threading.Event()
        if _was_drained():
            self._draining.set()
        self._error = ""
        self._thread = threading.Thread(target=self._work, name="proctor-worker", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """Where it is and what it does: the fields of `WorkerStatus`, without its name."""
        import ray

        worker = self._worker
        return {
            "state": self._state(),
            "node": str(ray.get_runtime_context().get_node_id()),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "running": worker.running if worker else 0,
            "max_running": self._max_running,
            "finished": worker.finished if worker else 0,
            "error": self._error,
        }

    def drain(self) -> None:
        """Take no more runs."""
        self._draining.set()
        if self._worker is not None:
            self._worker.drain()

    def _state(self) -> str:
        if not self._thread.is_alive():
            return "drained"
        if self._error:
            return "failing"
        if self._worker is None:
            return "away"
        return "draining" if self._draining.is_set() else "working"

    def _work(self) -> None:
        while not self._draining.is_set():
            try:
                anyio.run(self._run)
            except Exception as error:  # told by `status`, and tried again
                self._error = f"{type(error).__name__}: {error}"
                logger().error("worker.failed", error=self._error)
                self._draining.wait(RETRY_S)

    async def _run(self) -> None:
        store = open_store(self._place)
        try:
            worker = Worker(store, max_running=self._max_running)
            self._worker, self._error = worker, ""
            if self._draining.is_set():
                worker.drain()
            await worker.run()
        finally:
            with anyio.CancelScope(shield=True):
                await store.aclose()


def remember_drain(name: str) -> None:
    """Keep, as long as the cluster lives, that the worker of this name takes no more: Ray starts one that died again
    as it started it first.
    """
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(name, b"drained", namespace=NAMESPACE)


def forget_drain(name: str) -> None:
    """A new worker gets this name."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(name, namespace=NAMESPACE)


def _was_drained() -> bool:
    """Whether the worker of this actor was told to take no more before its process died."""
    import ray
    from ray.experimental.internal_kv import _internal_kv_exists

    return _internal_kv_exists(ray.get_runtime_context().get_actor_name() or "", namespace=NAMESPACE)

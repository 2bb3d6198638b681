"""Workers on a Ray cluster: Ray places them, restarts them, and knows where they are.

Ray's calls block, so call these functions from a thread.
"""

import logging
import os
import socket
import threading
from typing import Any, Final

import anyio
import msgspec

from proctor.supervisor.errors import NotInstalledError, UsageError
from proctor.supervisor.log import logger

from ..stores.store_names import open_store
from .worker import Worker

NAMESPACE: Final = "proctor"
"""The namespace on a cluster for workers and notes about them."""
RETRY_S: Final = 5.0
"""How long to wait before a store that failed is opened again."""


class HostedWorker:
    """A Ray actor: its calls return at once; its worker, on the store of that name, runs in a thread of its own."""

    def __init__(self, store: str, max_running: int) -> None:
        self._store = store
        self._worker: Worker | None = None
        self._max_running = max_running
        self._draining = threading.Event()
        if _was_drained():
            self._draining.set()
        self._error = ""
        self._thread = threading.Thread(target=self._work, name="proctor-worker", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """The fields of `WorkerStatus`, without its name."""
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
        """Claim no more runs."""
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
        store = open_store(self._store)
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
    """Note on the cluster that a worker is draining, as Ray restarts a dead one as it was first started."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(name, b"drained", namespace=NAMESPACE)


def forget_drain(name: str) -> None:
    """Remove that note, for a new worker of this name."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(name, namespace=NAMESPACE)


def _was_drained() -> bool:
    """Whether this actor's worker was draining before its process died."""
    import ray
    from ray.experimental.internal_kv import _internal_kv_exists

    return _internal_kv_exists(ray.get_runtime_context().get_actor_name() or "", namespace=NAMESPACE)


SHARE: Final = 0.01
"""The part of a processor that a worker reserves: with 0, Ray would not spread workers; more would be taken from
other work on the node.
"""
ANSWER_S: Final = 5.0
"""How long a worker may take to answer; one that takes longer is `away`."""
_REACHED_S: Final = 5.0


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker of a fleet.

    Attributes:
        name: Its name in the fleet.
        state: `working`, `draining`, `drained`, `failing` (`error` says why; it retries), or `away`: Ray is starting
            it.
        node: The id of its Ray node.
        host: The machine's name.
        pid: The id of its process.
        running: How many runs are active there.
        max_running: The most runs at once.
        finished: How many runs have ended there since it started.
        error: Why it fails.
    """

    name: str
    state: str
    node: str = ""
    host: str = ""
    pid: int = 0
    running: int = 0
    max_running: int = 0
    finished: int = 0
    error: str = ""


class Placement:
    """The workers of one fleet on a cluster; without an address, on that of RAY_ADDRESS, else on this machine's."""

    def __init__(self, name: str, address: str | None) -> None:
        self._name = name
        self._address = address
        self._own = False

    def connect(self) -> Any:
        """Ray, connected. Raises UsageError if it is not installed or there is no such cluster."""
        ray = _ray()
        if ray.is_initialized():
            return ray
        address = self._address or os.environ.get("RAY_ADDRESS") or "auto"
        _check_reached(address)
        log = logging.getLogger("ray")
        level = log.level
        log.setLevel(logging.ERROR)  # it warns of being in a thread
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            cause = error.__cause__ or error  # a wrong token is what did not let it connect
            raise UsageError(f"the Ray cluster at `{address}` cannot be used: {cause}") from error
        finally:
            log.setLevel(level)
        self._own = True
        return ray

    def disconnect(self) -> None:
        """Leave the cluster, if this has joined it; the workers stay."""
        if self._own:
            _ray().shutdown()
            self._own = False

    def place(self, store: str, *, workers: int, max_running: int) -> None:
        """Start workers on a store, spread over the nodes, until there are this many; none is removed."""
        ray = self.connect()
        there = self._names()
        free = (name for n in range(1, workers + 1) if (name := f"{self._name}-{n}") not in there)
        for name, _ in zip(free, range(workers - len(there)), strict=False):
            forget_drain(name)
            actor = ray.remote(HostedWorker).options(
                name=name,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                num_cpus=SHARE,
                scheduling_strategy="SPREAD",
            )
            actor.remote(store, max_running)

    def status(self) -> list[WorkerStatus]:
        """Every worker of the fleet, by number."""
        ray = self.connect()
        names = self._names()
        pending = {name: actor.status.remote() for name in names if (actor := self._actor(name)) is not None}
        if pending:
            ray.wait(list(pending.values()), num_returns=len(pending), timeout=ANSWER_S)
        return [self._worker_status(name, pending.get(name)) for name in names]

    def drain(self, name: str) -> None:
        """Have a worker claim no more runs, even if Ray restarts it."""
        actor = self._actor(name)
        if actor is not None:
            remember_drain(name)
            actor.drain.remote()

    def remove(self, name: str) -> None:
        """End a worker, without a restart."""
        actor = self._actor(name)
        if actor is not None:
            _ray().kill(actor)

    def _names(self) -> list[str]:
        found = _ray().util.list_named_actors(all_namespaces=True)
        numbers = [
            int(number)
            for fleet, _, number in (one["name"].rpartition("-") for one in found if one["namespace"] == NAMESPACE)
            if fleet == self._name and number.isdecimal()
        ]
        return [f"{self._name}-{number}" for number in sorted(numbers)]

    def _actor(self, name: str) -> Any:
        try:
            return _ray().get_actor(name, namespace=NAMESPACE)
        except ValueError:  # it has gone
            return None

    def _worker_status(self, name: str, answer: Any) -> WorkerStatus:
        ray = _ray()
        try:
            fields = {} if answer is None else ray.get(answer, timeout=0)
        except ray.exceptions.RayError:
            fields = {}
        return WorkerStatus(name=name, **{"state": "away", **fields})


def _check_reached(address: str) -> None:
    """Raises UsageError if nobody listens at an address, which Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "//" in address or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()
    except OSError as error:
        raise UsageError(f"there is no Ray cluster at `{address}`: {error}") from error


def _ray() -> Any:
    """Ray, with token authentication and without usage reports, unless the environment sets otherwise."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise NotInstalledError("fleets on a cluster need Ray", "ray") from None
    return ray

"""`/healthz`: for load balancers and service managers, which have no token and many names for this server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import web_server
from postgres_server import OwnServer, needs_own_server

from proctor.adapters.kit.http_server import listening, url_of
from proctor.adapters.operations.identities import one_token
from proctor.adapters.stores import open_store
from proctor.adapters.web.api_control import KEPT_S, StoreHealth
from proctor.adapters.web.server import serve
from proctor.supervisor.ports.stored_types import RunInfo
from proctor.supervisor.store.memory_store import MemoryStore
from proctor.supervisor.testing.fakes import PATIENCE_S


def test_anybody_may_learn_that_all_is_well_and_nothing_else(site: web_server.Site) -> None:
    """By any name, without a token, from any page."""
    answer = site.ask(
        "GET", "/healthz", token=None, headers={"Host": "10.0.0.7:80", "Origin": "https://other.example"}
    )

    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert site.ask("HEAD", "/healthz", token=None).body == b""
    assert answer.headers["cache-control"] == "no-store"


def test_nothing_but_reading_is_answered_there(site: web_server.Site) -> None:
    """Nor under a name that only looks like it, nor with anything that is not understood."""
    assert site.ask("POST", "/healthz", token=None).status == 405
    assert site.ask("GET", "/healthz/../api/runs", token=None).status == 401
    assert site.ask("GET", "/healthz/", token=None).status == 401
    assert site.ask("GET", "/healthz?secrets=1", token=None).status == 400
    assert site.ask("GET", "/api/runs", headers={"Host": "10.0.0.7:80"}).status == 421


def test_the_document_says_that_no_token_is_needed(site: web_server.Site) -> None:
    """And how it fails."""
    described = site.get("/openapi.json", token=None)["paths"]["/healthz"]["get"]

    assert described["security"] == []
    assert sorted(described["responses"]) == ["200", "400", "503"]


@pytest.mark.parametrize("done", ["removed", "replaced"])
def test_a_file_that_is_gone_is_reported_without_its_name(tmp_path: Path, done: str) -> None:
    """Holders of a token learn more."""
    with web_server.site(tmp_path) as site:
        site.until("/healthz", lambda found: found == {"status": "ok"})
        if done == "removed":
            site.store.unlink()
        else:
            site.store.with_name("other.db").write_bytes(site.store.read_bytes())
            os.replace(site.store.with_name("other.db"), site.store)
        refused = _answered(site, 503)

        assert refused.status == 503
        assert refused.data["code"] == "store_unreachable"
        assert str(tmp_path) not in refused.body.decode()
        assert "while it was in use" in site.ask("GET", "/api/runs").data["message"]


STOPS = [pytest.param(how, marks=needs_own_server) for how in (signal.SIGQUIT, signal.SIGKILL)]


@pytest.fixture
def database() -> Iterator[OwnServer]:
    """A server that can be stopped."""
    server = OwnServer()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("how", STOPS)
def test_a_database_that_stops_and_comes_back_is_noticed(database: OwnServer, how: signal.Signals) -> None:
    """The server goes on serving meanwhile, and does what it did before."""
    with _site_on(database.url()) as site:
        assert site.ask("GET", "/healthz", token=None).status == 200
        database.stop(how)
        refused = _answered(site, 503)
        database.start()
        back = _answered(site, 200)

    assert refused.data["code"] == "store_unreachable"
    assert str(database.folder) not in refused.body.decode()
    assert back.data == {"status": "ok"}


class _CountingStore(MemoryStore):
    """Counts how often it is asked for runs; does not answer while `stuck`."""

    reads, stuck = 0, False

    async def runs(self, **which: Any) -> list[RunInfo]:
        self.reads += 1
        if self.stuck:
            await anyio.sleep_forever()
        return await super().runs(**which)


@pytest.mark.trio
async def test_however_many_ask_the_store_is_asked_once_a_second(autojump_clock: Any) -> None:
    """Nobody without a token makes work for it."""
    store = _CountingStore()
    health = StoreHealth(store)
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(health.good)
    at_once = store.reads
    await anyio.sleep(KEPT_S)

    assert await health.good()
    assert (at_once, store.reads) == (1, 2)


@pytest.mark.trio
async def test_a_store_that_does_not_answer_is_no_good_and_may_be_again(autojump_clock: Any) -> None:
    """All who ask meanwhile are told at the same time."""
    store = _CountingStore()
    store.stuck = True
    health = StoreHealth(store)
    found: list[bool] = []

    async def ask() -> None:
        found.append(await health.good())

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
    store.stuck = False
    await anyio.sleep(KEPT_S)

    assert (found, store.reads) == ([False] * 10, 1)
    assert await health.good()


def _answered(site: web_server.Site, status: int) -> web_server.Answer:
    """The first answer of this status."""
    for _ in range(int(PATIENCE_S / 0.1)):
        answer = site.ask("GET", "/healthz", token=None)
        if answer.status == status:
            return answer
        threading.Event().wait(0.1)
    raise AssertionError(answer)


@contextmanager
def _site_on(url: str) -> Iterator[web_server.Site]:
    """A server on a database, in a thread of its own."""
    listener = listening("127.0.0.1:0", why="")
    end = threading.Event()

    async def main() -> None:
        store = open_store(url)
        async with store, anyio.create_task_group() as tasks:
            tasks.start_soon(serve, store, listener, one_token(web_server.ANA)[0])
            await anyio.to_thread.run_sync(end.wait)
            tasks.cancel_scope.cancel()

    thread = threading.Thread(target=anyio.run, args=(main,))
    thread.start()
    try:
        yield web_server.Site(url_of(listener), Path())
    finally:
        end.set()
        thread.join()

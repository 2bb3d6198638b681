"""`proctor serve` in this process, and a client that sends exactly what it is given: `import web_server`.

The runs are in other processes: `going` starts one of a scripted agent.
"""

import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from proctor.adapters.kit.http_server import listening, url_of
from proctor.adapters.operations.identities import AccessTokens, read_tokens
from proctor.adapters.stores import open_store
from proctor.adapters.web.server import serve
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import warm_proctor
from tests.stopping import killed_at_the_end

TOKENS = """\
tokens:
  - {name: ana, token: ana-token-1234567890, roles: [see, answer, stop], groups: [leads]}
  - {name: ben, token: ben-token-1234567890, roles: [answer]}
  - {name: eve, token: eve-token-1234567890}
"""
ANA, BEN, EVE = (f"{name}-token-1234567890" for name in ("ana", "ben", "eve"))
CHROMIUM = shutil.which("chromium-headless-shell") or "/usr/bin/chromium"
"""The headless shell draws no window around a page, which is most of the browser's work."""
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--renderer-process-limit=1",
]
"""Chromium's options: headless, no background requests, one process for all of its tabs."""
PROCTOR = (sys.executable, "-m", "proctor")


class Answer(NamedTuple):
    """The server's response."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def data(self) -> Any:
        """Its JSON."""
        return json.loads(self.body)


class Site:
    """A server and its store."""

    def __init__(self, url: str, store: Path) -> None:
        self.url = url
        self.store = store
        self.host = url.removeprefix("http://")

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = ANA,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Send one request; a header that is None is omitted."""
        given: dict[str, str | None] = {"Host": self.host}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
        if body is not None:
            given["Content-Type"] = "application/json"
        given |= headers or {}
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            return Answer(response.status, response.read(), {k.lower(): v for k, v in response.getheaders()})
        finally:
            connection.close()

    def get(self, path: str, *, token: str | None = ANA) -> Any:
        """The JSON of a response, which must be found."""
        answer = self.ask("GET", path, token=token)
        assert answer.status == 200, answer
        return answer.data

    @contextmanager
    def stream(self, path: str, *, last: int | str | None = None) -> Iterator[Iterator[tuple[str, str, Any]]]:
        """Server-sent events: id, event and data of each."""
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE_S)
        headers = {"Authorization": f"Bearer {ANA}"} | ({} if last is None else {"Last-Event-ID": str(last)})
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield _events(response)
        finally:
            connection.close()

    def until(self, path: str, wanted: Any, *, seconds: float = 20) -> Any:
        """The response of a path once it satisfies `wanted`."""
        for _ in range(int(seconds / 0.05)):
            found = self.get(path)
            if wanted(found):
                return found
            threading.Event().wait(0.05)
        raise AssertionError(f"it never came at {path}: {found}")


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    for line in response:
        text = line.decode().rstrip("\r\n")
        if text and not text.startswith(":"):
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif not text and "data" in fields:
            yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])
            fields = {}


@contextmanager
def site(folder: Path, tokens: AccessTokens | None = None, *, place: str = "", **more: Any) -> Iterator[Site]:
    """A server in its own thread, on a store in the folder, or the one at `place`."""
    file = private(folder / "tokens.yaml", TOKENS)
    listener = listening("127.0.0.1:0", why="")
    found = Site(url_of(listener), folder / "runs.db")
    end = threading.Event()

    async def main() -> None:
        async with open_store(place or str(found.store)) as store, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(store, listener, tokens or read_tokens(str(file)), **more))
            await anyio.to_thread.run_sync(end.wait)
            tasks.cancel_scope.cancel()

    thread = threading.Thread(target=anyio.run, args=(main,))
    thread.start()
    try:
        yield found
    finally:
        end.set()
        thread.join()
        listener.close()


def private(file: Path, text: str) -> Path:
    """A file that only its owner can read."""
    file.write_text(text)
    file.chmod(0o600)
    return file


@contextmanager
def serving(folder: Path, *options: str, files: int = 1024) -> Iterator[Site]:
    """`proctor serve` in its own process, with these tokens and so many open files, on a store in the folder.
    `errors` there is its standard error.
    """
    private(folder / "tokens.yaml", TOKENS)
    env = {**os.environ, "PROCTOR_STORE": "runs.db"}
    subprocess.run([*PROCTOR, "store", "--make"], cwd=folder, env=env, check=True, stdout=subprocess.DEVNULL)
    command = [*PROCTOR, "serve", "--listen", "127.0.0.1:0", "--tokens", "tokens.yaml", "--json", *options]
    limited = ["bash", "-c", f"ulimit -n {files}; exec {shlex.join(command)}"]
    with (folder / "errors").open("w") as errors, subprocess.Popen(
        limited, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, (folder / "errors").read_text()
            yield Site(json.loads(line)["url"].rstrip("/").replace("https:", "http:"), folder / "runs.db")
        finally:
            process.terminate()


def going(
    site: Site, script: str, policy: str, *more: str, prompt: str = "Clean up"
) -> AbstractContextManager[subprocess.Popen[str]]:
    """A run in its own process, with its events as they come; killed at the end."""
    folder = site.store.parent
    (folder / "agent.yaml").write_text(script)
    (folder / "policy.yaml").write_text(policy)
    return killed_at_the_end(
        [
            *(warm_proctor(), "run", "--json", "--adapter", "scripted", "--set", "script=agent.yaml"),
            *("--policy", "policy.yaml", "--store", str(site.store), *more, prompt),
        ],
        cwd=folder,
        env={**os.environ, "PROCTOR_STORE": ""},
    )


@contextmanager
def waits(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The approval that a run requests, once it does."""
    assert process.stdout is not None
    yield next(event for event in map(json.loads, process.stdout) if event["type"] == "tool_approval_requested")


def ran(site: Site, script: str, policy: str, *more: str, prompt: str = "Clean up") -> list[dict[str, Any]]:
    """The events of an ended run."""
    with going(site, script, policy, *more, prompt=prompt) as process:
        assert process.stdout is not None
        return [json.loads(line) for line in process.stdout]

"""`proctor mcp` as a process: exit codes, signals, standard input and output, HTTP."""

import json
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse
from proxy_processes import HELLO, LENIENT, READY, SESSION, Posted, ProxyOverHttp, call, post, proctor
from proxy_processes import QUICK as SERVER

from proctor.adapters.cli import main
from proctor.adapters.mcp_proxy import downstream
from proctor.adapters.mcp_proxy.adapter import Serving, serve
from proctor.adapters.mcp_proxy.downstream import CommandUpstream, HttpDownstream
from proctor.adapters.mcp_proxy.messages import Incoming, Outgoing
from proctor.adapters.mcp_proxy.relay import LEFT
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.policies.events import ToolCallFailed
from proctor.supervisor import MemoryStore
from proctor.supervisor.testing.fakes import PATIENCE_S

PROCTOR = [sys.executable, "-c", "from proctor.adapters.cli import main; main()"]
QUICK = [sys.executable, "-S", str(SERVER)]


def arguments(folder: Path, policy: str, *more: str) -> list[str]:
    file = folder / "policy.yaml"
    file.write_text(policy)
    return ["mcp", "--policy", str(file), "--store", str(folder / "store.db"), *more]


def test_bad_usage_and_bad_policies_exit_with_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No server is started, and the message says what is wrong. Any process that can connect can call tools, so it
    listens only on loopback.
    """
    for policy, more, why in (
        ("{name: p}", ("--url", "http://127.0.0.1:1/mcp", "--", "x"), "--url"),
        ("{nmae: p}", ("--", *QUICK), "nmae"),
        ("{name: p}", ("--listen", "0.0.0.0:0", "--", *QUICK), "can be reached from other machines"),
    ):
        with pytest.raises(SystemExit) as raised:
            main(arguments(tmp_path, policy, *more))
        assert raised.value.code == 2
        assert why in capfd.readouterr().err


GONE = "import os, sys; os.close(1); print('gone', file=sys.stderr, flush=True); input()"
GARBAGE = "print('gar\\x1b[31mbage', flush=True); input()"


@pytest.mark.parametrize(("server", "why"), [
    (["--url", "http://127.0.0.1:9/mcp"], "connection to the MCP server failed"),
    (["--", sys.executable, "-S", "-c", "pass"], "server ended"),
    (["--", sys.executable, "-S", "-c", GARBAGE], "server ended"),
    (["--", sys.executable, "-S", "-c", GONE], "server ended"),
])  # fmt: skip
def test_a_server_that_fails_is_reported_to_both_sides(tmp_path: Path, server: list[str], why: str) -> None:
    """The agent's request is answered, even after the server's end. The operator gets one line, and the exit code is
    3.
    """
    words, pipe = [proctor(), *arguments(tmp_path, "{name: p}", *server)], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        while GONE in server and "gone" not in process.stderr.readline():
            pass
        print(json.dumps(HELLO), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
        code, errors = process.wait(timeout=PATIENCE_S), process.stderr.read()

    assert (answer["id"], code) == ("hello", 3)
    assert why in answer["error"]["message"]
    assert why in errors
    assert "Traceback" not in errors
    assert "\x1b" not in errors


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_the_proxy_and_its_server(tmp_path: Path, sent: signal.Signals) -> None:
    """The server's process does not outlive the proxy, and the run has its end. A second Ctrl-C changes nothing."""
    pid_file = tmp_path / "pid"
    call = {"name": "hang", "arguments": {"path": str(pid_file)}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}) + "\n"
    command = [*PROCTOR, *arguments(tmp_path, "{name: p}", "--", *QUICK)]
    async with await anyio.open_process(command) as process:
        assert process.stdin is not None
        await process.stdin.send(line.encode())
        while not (pid_file.exists() and pid_file.read_text()):
            await anyio.sleep(0.01)
        process.send_signal(sent)
        while psutil.pid_exists(int(pid_file.read_text())):
            await anyio.sleep(0.01)
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()
    async with SQLiteStore(tmp_path / "store.db") as store:
        [run] = await store.runs()

    assert (process.returncode, run.status) == (0, "cancelled")


def test_a_client_that_disconnects_without_reading_its_answers_is_no_error(tmp_path: Path) -> None:
    """JavaScript clients connect by sockets, on which this is an error of the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [proctor(), *arguments(tmp_path, "{name: p}", "--", *QUICK)]
        with subprocess.Popen(
            command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE
        ) as process:
            theirs.close()
            ours.sendall(json.dumps(HELLO).encode() + b"\n")
            ours.recv(1)
            ours.close()
            _, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, errors) == (0, b"")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_http_clients_share_one_run(tmp_path: Path) -> None:
    """Two sessions of the protocol spend one budget. The server itself is reached over HTTP too."""
    policy = "{name: p, limits: {max_tool_calls: {max: 2, action: deny}}}"
    (tmp_path / "inner").mkdir()
    notices: list[str] = []

    async def on_message(message: Any) -> None:
        notices.append(getattr(message, "method", ""))

    with (
        ProxyOverHttp(tmp_path / "inner", policy="{name: open}") as (upstream, _),
        ProxyOverHttp(tmp_path, policy=policy, server=upstream) as (url, _),
    ):
        async with Client(url) as one, Client(url, message_handler=on_message) as two:
            before = await two.list_tools()
            results = [await client.call_tool("add", {"a": 1, "b": 2}) for client in (one, two, one)]
            after = await two.list_tools()

    assert [bool(result.is_error) for result in results] == [False, False, True]
    assert len(before.tools) > 0
    assert after.tools == []
    assert "notifications/tools/list_changed" in notices


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_client_that_disconnects_ends_only_its_own_calls(tmp_path: Path) -> None:
    """This is no error, and the run continues with other clients."""
    pid_file = tmp_path / "pid"
    with ProxyOverHttp(tmp_path, policy="{name: p}") as (url, _):
        async with Client(url) as one, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(one.call_tool, "hang", {"path": str(pid_file)}))
            while not (pid_file.exists() and pid_file.read_text()):
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        async with Client(url) as two:
            answered = await two.call_tool("add", {"a": 1, "b": 2})
    async with SQLiteStore(tmp_path / "store.db") as store:
        [run] = await store.runs()
        events = [event async for event in store.read(run.session_id)]

    [failed] = [event for event in events if isinstance(event, ToolCallFailed)]
    assert (failed.tool_name, failed.error, answered.is_error) == ("hang", LEFT, False)
    assert not [event for event in events if event.type == "error_occurred"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_session_that_ends_while_it_is_spoken_to_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    """As where its server dies: the operator would read a traceback for each message on its way."""
    urls: list[str] = []
    downstream = HttpDownstream("127.0.0.1:0", ready=urls.append)
    over = anyio.Event()

    async def greet(client: tuple[Incoming, Outgoing]) -> None:
        hello = await anext(aiter(client[0]))
        assert isinstance(hello, SessionMessage)
        await client[1].send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id="hello", result={})))
        await over.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(downstream.accept, greet)
        while not urls:
            await anyio.sleep(0.01)
        _, headers = await anyio.to_thread.run_sync(post, urls[0], HELLO)
        speak = partial(post, urls[0], READY, **{SESSION: headers[SESSION]})
        taken, _ = await anyio.to_thread.run_sync(speak)
        over.set()
        gone = 0
        while gone != 404:
            gone, _ = await anyio.to_thread.run_sync(speak)
        tasks.cancel_scope.cancel()

    assert taken == 202
    assert capfd.readouterr().err == ""


def test_a_run_that_is_cancelled_answers_every_request_over_http(tmp_path: Path) -> None:
    """Denied and active calls are answered before their connections are closed."""
    policy = "{name: p, tool_rules: [{deny: [write]}]}"
    with ProxyOverHttp(tmp_path, policy=policy, server=LENIENT) as (url, _):
        sessions = [{SESSION: post(url, HELLO)[1][SESSION]} for _ in range(2)]
        running = [Posted(url, call("hold", 1), **headers) for headers in sessions]
        seen = [Posted(url, call("look", 2), **headers).answer()["id"] for headers in sessions]
        denied = Posted(url, call("write", 3), **sessions[0])
        answers = [posted.answer() for posted in (*running, denied)]

    assert seen == [2, 2]
    assert [(answer["id"], answer["result"]["isError"]) for answer in answers] == [(1, True), (1, True), (3, True)]


@asynccontextmanager
async def quick_proxy() -> AsyncIterator[str]:
    """The URL of a proxy in this process, before the quick server."""
    urls: list[str] = []
    order = Serving(
        upstream=CommandUpstream(QUICK),
        downstream=HttpDownstream("127.0.0.1:0", ready=urls.append),
        policies=parse_policies("{name: p}"),
    )
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(serve, MemoryStore(), order, warn=print))
            while not urls:
                await anyio.sleep(0.01)
            yield urls[0]
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_clients_that_vanished_do_not_block_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that has been idle longest is closed, with its server. A session with a connected client stays."""
    monkeypatch.setattr(downstream, "_MOST_SESSIONS", 3)
    async with quick_proxy() as url, Client(url) as client:
        await client.list_tools()
        greeted = [await anyio.to_thread.run_sync(post, url, HELLO) for _ in range(4)]
        again = partial(post, url, HELLO, **{SESSION: greeted[0][1][SESSION]})
        gone, _ = await anyio.to_thread.run_sync(again)
        answered = await client.call_tool("add", {"a": 1, "b": 2})

    assert [status for status, _ in greeted] == [200] * 4
    assert (gone, answered.is_error) == (404, False)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_session_that_is_used_while_another_asks_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one, whose request takes a while to arrive, is too many: each session is a process."""
    monkeypatch.setattr(downstream, "_MOST_SESSIONS", 1)
    body = json.dumps(HELLO).encode()
    head = [
        *("POST /mcp HTTP/1.1", "Host: 127.0.0.1:1", "Accept: application/json, text/event-stream"),
        *("Content-Type: application/json", f"Content-Length: {len(body)}", "Expect: 100-continue", "", ""),
    ]
    async with quick_proxy() as url:
        _, headers = await anyio.to_thread.run_sync(post, url, HELLO)
        async with await anyio.connect_tcp("127.0.0.1", urlsplit(url).port or 0) as late:
            await late.send("\r\n".join(head).encode())
            awaited = await late.receive()
            listens = partial(Posted, url, method="GET", **{SESSION: headers[SESSION]})
            used = await anyio.to_thread.run_sync(listens)
            await late.send(body)
            refused = await late.receive()
        used._close()

    assert (awaited.split()[1], used.status, refused.split()[1]) == (b"100", 200, b"503")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_run_exits_with_1_after_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over its own pipes: the denied call is answered, then the process reports the reason."""
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", PATIENCE_S)
    target = tmp_path / "never"
    command = [*PROCTOR, *arguments(tmp_path, "{name: p, tool_rules: [{deny: [write]}]}", "--", *QUICK)]
    script = f"{shlex.join(command)} 2>{tmp_path}/err; echo $? >{tmp_path}/rc"
    parameters = StdioServerParameters(command="sh", args=["-c", script])
    async with Client(parameters) as client:
        result = await client.call_tool("write", {"path": str(target)})

    assert result.is_error
    assert not target.exists()
    assert (tmp_path / "rc").read_text().strip() == "1"
    assert "policy `p`" in (tmp_path / "err").read_text()

"""What an MCP server says to its client through `proctor mcp`: what the protocol lets it say, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from proxy_processes import HELLO, READY, call, command, environment, last_ping, line_of

from proctor.supervisor.testing.fakes import PATIENCE_S

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")

SERVER = Path(__file__).with_name("forging_server.py")


class Seen(msgspec.Struct):
    """What the client was told, what the server was told in answer to what it asked, what the operator was told."""

    by_client: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    errors: str


def exchange(folder: Path, *messages: dict[str, Any], replies: tuple[dict[str, Any], ...] = ()) -> Seen:
    """A server says these during a call; the client replies when it has the call's answer."""
    with subprocess.Popen(
        command(folder, server=SERVER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(folder),
    ) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        assert proxy.stderr is not None
        speak = call("say", 700, lines=[json.dumps(message) for message in messages])
        proxy.stdin.write(b"".join(line + b"\n" for line in (line_of(HELLO), line_of(READY), speak.encode())))
        proxy.stdin.flush()
        by_client: list[dict[str, Any]] = []
        for line in proxy.stdout:
            by_client.append(json.loads(line))
            if by_client[-1].get("id") == 700 and "result" in by_client[-1]:
                lines = [*map(line_of, replies), last_ping().encode()]
                proxy.stdin.write(b"".join(line + b"\n" for line in lines))
                proxy.stdin.flush()
            if by_client[-1].get("id") == "last":
                break
        proxy.stdin.close()
        errors = proxy.stderr.read().decode()
        proxy.wait(PATIENCE_S)
    got = map(json.loads, (folder / "asked.log").read_text().splitlines())
    return Seen(by_client, [message for message in got if "method" not in message], errors)


def request(method: str, id: Any = 9, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


FORGED = [
    request("tools/call", 1, name="bash", arguments={"command": "ls"}),
    request("tasks/get", 2, taskId="t"),
    request("initialize", 3),
    request("resources/read", 4, uri="file:///etc/passwd"),
    request("Sampling/createMessage", 5),
    notice("notifications/initialized"),
    notice("notifications/tasks/status", taskId="t"),
    notice("elicitation/create", message="your password?"),
    notice("evil/run"),
]


def test_what_no_server_says_is_not_passed_on(tmp_path: Path) -> None:
    """Requests are answered with an error, by the proxy only; notices are dropped; the operator is told."""
    replies = tuple({"jsonrpc": "2.0", "id": id, "result": {"mark": 1}} for id in range(1, 6))
    seen = exchange(tmp_path, *FORGED, replies=replies)
    methods = [message["method"] for message in FORGED]

    assert [message for message in seen.by_client if message.get("method") in methods] == []
    assert [method for method in methods if method not in seen.errors] == []
    assert [(m["id"], m["error"]["code"]) for m in seen.answers] == [(id, -32601) for id in range(1, 6)]


ALLOWED = [
    request("ping", 1),
    request("roots/list", "x"),
    request("sampling/createMessage", 2, messages=[], maxTokens=9),
    request("elicitation/create", 700, message="your name?", requestedSchema={"type": "object", "properties": {}}),
    notice("notifications/message", level="info", data="x"),
    notice("notifications/resources/updated", uri="a:b"),
    notice("notifications/elicitation/complete", elicitationId="e"),
]


def test_what_a_server_may_say_reaches_its_client_as_it_is(tmp_path: Path) -> None:
    """And the client's answers reach the server, once each: also under an id that a call of the client's has."""
    asking = [message["id"] for message in ALLOWED if "id" in message]
    replies = tuple({"jsonrpc": "2.0", "id": id, "result": {"mark": 1}} for id in asking)
    seen = exchange(tmp_path, *ALLOWED, replies=(*replies, *replies))

    assert [message for message in seen.by_client if "method" in message] == ALLOWED
    assert seen.answers == [*replies]
    assert [m["id"] for m in seen.by_client if "result" in m] == ["hello", 700, "last"]

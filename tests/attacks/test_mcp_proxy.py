"""Attempts to bypass the MCP proxy: odd messages of clients and of servers, by stdio and over HTTP."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from loopback import raw
from proxy_processes import (
    HELLO,
    HOSTILE,
    LENIENT,
    READY,
    SESSION,
    Posted,
    ProxyOverHttp,
    Talk,
    call,
    last_ping,
    line_of,
    post,
    talk,
)

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")


def write(folder: Path, **message: Any) -> str:
    """A call of the denied tool as one line; `message` says how it differs from a valid one."""
    params = {"name": "write", "arguments": {"path": str(folder / "written")}}
    return json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": params, **message})


FOREIGN = {"origin": "http://evil.example", "host": "evil.example"}
ODD_IDS: list[Any] = [None, 1.0, 1.5, True, False, {}, [], [1], {"id": 1}, 1e300]

ODD_METHODS = ["tools/Call", "TOOLS/CALL", "tools/call ", "tools//call", "tasks/result", "tools/call_many", "x/tools"]


def test_an_odd_message_is_not_a_call(tmp_path: Path) -> None:
    """A hostile client writes each, and none reaches the server. A duplicate key is evaluated as the server would
    read it, since the proxy encodes the evaluated message again.
    """
    ids = [write(tmp_path, id=odd) for odd in ODD_IDS]  # some servers answer these anyway (JSON-RPC 2.0, section 4)
    methods = [write(tmp_path, id=number, method=method) for number, method in enumerate(ODD_METHODS)]
    notices = [write(tmp_path, method=method) for method in ODD_METHODS]
    # servers that read keys case-insensitively would use the last
    tool = {"name": "read", "arguments": {"path": "x"}, "Name": "write"}
    path = {"name": "read", "arguments": {"path": "safe", "Path": "/etc/passwd"}}
    keys = [write(tmp_path, id=71, params=tool), write(tmp_path, id=72, params=path)]
    method = write(tmp_path, id=73, method="ping")[:-1] + ', "Method": "tools/call"}'
    batch = f"[{write(tmp_path, id=74)}]"
    unasked = json.dumps({"jsonrpc": "2.0", "id": 99, "result": {"method": "tools/call"}})
    fail_last = write(tmp_path, id=77).replace('"name": "write"', '"name": "write", "name": "fail"')
    write_last = write(tmp_path, id=78).replace('"name": "write"', '"name": "fail", "name": "write"')
    lines = [*ids, write(tmp_path), *methods, *notices, *keys, method, batch, unasked, fail_last, write_last]
    done = talk(tmp_path, *lines, ids=(71, 72, 77, 78))
    results = {answer["id"]: answer["result"] for answer in done.got if "result" in answer}
    errors = [answer for answer in done.got if "error" in answer]
    of_nobody = [answer["error"]["code"] for answer in errors if answer.get("id") is None]
    codes = {answer["id"]: answer["error"]["code"] for answer in errors if answer.get("id") is not None}

    assert done.server_log.splitlines().count("tools/call") == 1
    assert results[78]["isError"]
    assert not {*ODD_METHODS} & {*done.server_log.splitlines()}
    assert not (tmp_path / "written").exists()
    assert of_nobody[: len(ids)] == [-32600] * len(ids)
    assert len(of_nobody) > len(ids), "a call without an id is answered with an error"
    assert {name: codes.get(name) for name in range(len(methods))} == dict.fromkeys(range(len(methods)), -32601)
    assert (codes[71], codes[72]) == (-32602, -32602)
    assert {*results} <= {"hello", 73, 77, 78, "last"}


def head(url: str, *lines: str) -> bytes:
    """The head of a request to the proxy; the connection closes after it."""
    given = [f"Host: {urlsplit(url).netloc}", "Content-Type: application/json", "Connection: close", *lines]
    return (
        "\r\n".join(["POST /mcp HTTP/1.1", "Accept: application/json, text/event-stream", *given, "", ""])
    ).encode()


def test_only_a_handshake_starts_a_server_and_a_call_has_one_form(tmp_path: Path) -> None:
    """Neither an image of a web page, which has no origin, nor a page of another origin (DNS rebinding) starts one;
    nor does a call, a batch, half a message, or another method. In its session, a call must not be framed twice,
    hidden behind another request or in a header, batched, or have an odd id or an ended session.
    """
    denied = call("write").encode()
    odd: list[Any] = [json.loads(call("write")), [HELLO], {**HELLO, "method": "Initialize"}, b"", b"{", b"\xff", b"7"]
    with ProxyOverHttp(tmp_path) as (url, log):
        foreign = [post(url, HELLO, **{name: value})[0] for name, value in FOREIGN.items()]
        met = [post(url, b"", method=method)[0] for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")]
        posted = [post(url, message)[0] for message in odd]
        met += [post(url, HELLO, origin="null")[0], post(url, HELLO, **{SESSION: "x"})[0]]

        assert set(foreign) <= {403, 421}
        assert all(status >= 400 for status in (*met, *posted))
        assert not log.exists()

        session = post(url, HELLO)[1][SESSION]
        headers = {SESSION: session}
        post(url, READY, **headers)
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (denied[:9], denied[9:])) + b"0\r\n\r\n"
        line, place = f"{SESSION}: {session}", urlsplit(url).netloc
        raw(place, head(url, line, "Transfer-Encoding: chunked"), chunks)
        twice = raw(place, head(url, line, "Content-Length: 4", "Transfer-Encoding: chunked") + chunks)
        raw(place, head(url, line, "Content-Length: 2", f"Content-Length: {len(denied)}"), denied)
        raw(place, head(url, line, f"{SESSION}: other", f"Content-Length: {len(denied)}"), denied)
        raw(
            place,
            head(url, line, "Content-Length: 2") + b"{}" + head(url, line, f"Content-Length: {len(denied)}") + denied,
        )
        for body in (b"[" + denied + b"]", b"\xef\xbb\xbf" + denied, denied.decode().encode("utf-16")):
            post(url, body, **headers)
        for odd in ODD_IDS:
            post(url, json.loads(write(tmp_path, id=odd)), **headers)
        post(url, denied, **headers, **{"x-http-method-override": "tools/call", "content-type": "text/plain"})
        post(url, last_ping().encode(), **headers)
        ended = post(url, b"", method="DELETE", **headers)[0]
        after = post(url, denied, **headers)[0]

        assert "tools/call" not in log.read_text()
        assert twice.startswith(b"HTTP/1.1 400")
        assert ended == 200
        assert after == 404


def request(method: str, id: Any = 9, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


FORGED = [
    request("tools/call", 11, name="bash", arguments={"command": "ls"}),
    request("tasks/get", 12, taskId="t"),
    request("initialize", 13),
    request("resources/read", 14, uri="file:///etc/passwd"),
    request("Sampling/createMessage", 15),
    notice("notifications/initialized"),
    notice("notifications/tasks/status", taskId="t"),
    notice("elicitation/create", message="your password?"),
    notice("evil/run"),
]


ALLOWED = [
    request("ping", 1),
    request("roots/list", "x"),
    request("sampling/createMessage", 2, messages=[], maxTokens=9),
    request("elicitation/create", 700, message="your name?", requestedSchema={"type": "object", "properties": {}}),
    notice("notifications/message", level="info", data="x"),
    notice("notifications/resources/updated", uri="a:b"),
    notice("notifications/elicitation/complete", elicitationId="e"),
]


def test_a_server_can_send_only_allowed_messages_to_its_client(tmp_path: Path) -> None:
    """The proxy itself answers other requests with an error and drops other notifications, and reports both to the
    operator. The client's answers reach the server once each, even with the id of a client's call.
    """
    asking = [message["id"] for message in ALLOWED if "id" in message]
    forged = [message["id"] for message in FORGED if "id" in message]
    replies = tuple({"jsonrpc": "2.0", "id": id, "result": {"mark": 1}} for id in (*asking, *forged))
    lines = [json.dumps(message).encode().hex() for message in (*FORGED, *ALLOWED)]
    with Talk(tmp_path, server=HOSTILE, answers={"before tools/call": lines}) as client:
        client.send(call("say", 700))
        client.until(700)
        client.send(*map(line_of, (*replies, *replies)), last_ping())
        client.until("last")
    got = map(json.loads, client.server_log.splitlines())
    answers = [message for message in got if "method" not in message]
    refused = [(m["id"], m["error"]["code"]) for m in answers if "error" in m]

    assert [message for message in client.got if "method" in message] == ALLOWED
    assert [message["method"] for message in FORGED if message["method"] not in client.shown] == []
    assert refused == [(id, -32601) for id in forged]
    assert [m for m in answers if "result" in m] == [*replies[: len(asking)]]
    assert [m["id"] for m in client.got if "result" in m] == ["hello", 700, "last"]


def test_over_http_each_request_has_its_own_response_and_no_stream_stays_open(tmp_path: Path) -> None:
    """The library has one stream for each text of an id, and one of them for the server's messages. A second request
    with the same text would get the first one's answer, and the first none. A cancelled request's stream ends too;
    otherwise its client would run out of connections.
    """
    with ProxyOverHttp(tmp_path, policy="{name: p}", server=LENIENT) as (url, _):
        headers = {SESSION: post(url, HELLO)[1][SESSION]}
        post(url, READY, **headers)
        held = [Posted(url, call("hold", id), **headers) for id in (1, 5, "a")]
        again = [Posted(url, call("hold_test", id), **headers).status for id in (1, "1", "5", "a", "_GET_stream")]
        resumed = Posted(url, method="GET", **headers, **{"last-event-id": "1"}).status
        released = Posted(url, call("release", 6), **headers).next()
        answers = [stream.next() for stream in held]
        withdrawn = Posted(url, call("hold", 8), **headers)
        post(url, notice("notifications/cancelled", requestId=8), **headers)
        cancelled = withdrawn.next()

    assert again == [400] * 5
    assert resumed == 400
    assert released["id"] == 6
    assert [each["id"] for each in answers] == [1, 5, "a"]
    assert not any(each["result"]["isError"] for each in answers)
    assert (cancelled["id"], cancelled["error"]["code"]) == (8, -32800)


def test_a_request_with_an_id_in_use_does_not_answer_the_first(tmp_path: Path) -> None:
    """An error with that id would tell the client that its active call had failed."""
    with Talk(tmp_path, policy="{name: p}", server=LENIENT) as client:
        client.send(call("hold", 7), call("read", 7), call("release", 8))
        client.until(7, 8)

    assert [m["error"]["code"] for m in client.got if m.get("id", 0) is None] == [-32600]
    assert [m["result"]["isError"] for m in client.got if m.get("id") == 7] == [False]
    assert client.server_log.count("tools/call") == 2


def test_a_servers_request_during_a_call_reaches_a_client_without_its_own_stream(tmp_path: Path) -> None:
    """An HTTP client need not open one, and the call would wait for ever."""
    real = Path(__file__).parents[1] / "adapters" / "mcp_proxy" / "server.py"
    asking = {**HELLO, "params": {**HELLO["params"], "capabilities": {"elicitation": {}}}}
    with ProxyOverHttp(tmp_path, policy="{name: p}", server=real) as (url, _):
        headers = {SESSION: post(url, asking)[1][SESSION]}
        post(url, READY, **headers)
        called = Posted(url, call("ask", 7, question="who?"), **headers)
        elicitation = called.next()
        given = {"action": "accept", "content": {"name": "Ana"}}
        post(url, {"jsonrpc": "2.0", "id": elicitation["id"], "result": given}, **headers)
        answer = called.next()

    assert elicitation["method"] == "elicitation/create"
    assert answer["result"]["content"][0]["text"] == "accept Ana"

"""No tool call goes round `proctor mcp`, however the message that asks for it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from proxy_processes import HELLO, READY, ProxyOverHttp, last_ping, post, talk

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")


def write(folder: Path, **message: Any) -> str:
    """A call of the denied tool, as one line; `message` says how it differs from a proper one."""
    params = {"name": "write", "arguments": {"path": str(folder / "written")}}
    return json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": params, **message})


FOREIGN = {"origin": "http://evil.example", "host": "evil.example"}
ODD_IDS: list[Any] = [None, 1.0, 1.5, True, False, {}, [], [1], {"id": 1}, 1e300]


def test_a_call_with_an_invalid_id_never_reaches_the_server(tmp_path: Path) -> None:
    """JSON-RPC ids are strings and integers; some servers answer others all the same (JSON-RPC 2.0, section 4)."""
    answers, server_log = talk(tmp_path, *(write(tmp_path, id=odd) for odd in ODD_IDS))

    assert "tools/call" not in server_log
    assert not (tmp_path / "written").exists()
    assert [answer["error"]["code"] for answer in answers if "error" in answer] == [-32600] * len(ODD_IDS)


def test_a_call_as_a_notification_never_reaches_the_server(tmp_path: Path) -> None:
    """A server may run it and just not answer."""
    answers, server_log = talk(tmp_path, write(tmp_path))

    assert "tools/call" not in server_log
    assert any("error" in answer for answer in answers)


ODD_METHODS = ["tools/Call", "TOOLS/CALL", "tools/call ", "tools//call", "tasks/result", "tools/call_many", "x/tools"]


def test_a_method_that_the_protocol_does_not_define_is_not_passed_on(tmp_path: Path) -> None:
    """As a request and as a notification."""
    requests = [write(tmp_path, id=n, method=method) for n, method in enumerate(ODD_METHODS)]
    notices = [write(tmp_path, method=method) for method in ODD_METHODS]
    answers, server_log = talk(tmp_path, *requests, *notices)

    assert not {*ODD_METHODS} & {*server_log.splitlines()}
    codes = {answer["id"]: answer["error"]["code"] for answer in answers if isinstance(answer.get("id"), int)}
    assert codes == dict.fromkeys(range(len(ODD_METHODS)), -32601)


def test_a_batch_is_not_passed_on(tmp_path: Path) -> None:
    """The protocol had batches for one revision; the proxy takes one message a line."""
    _, server_log = talk(tmp_path, f"[{write(tmp_path, id=7)}]")

    assert "tools/call" not in server_log


def test_a_key_in_another_case_does_not_rename_the_tool(tmp_path: Path) -> None:
    """Servers that read keys without regard to case would take the last: `Name`, or `Method`."""
    params = {"name": "read", "arguments": {"path": "x"}, "Name": "write"}
    renamed = write(tmp_path, id=7, params=params)
    twice = write(tmp_path, id=8, method="ping")[:-1] + ', "Method": "tools/call"}'
    answers, server_log = talk(tmp_path, renamed, twice)

    assert "tools/call" not in server_log
    assert [answer["error"]["code"] for answer in answers if answer.get("id") == 7] == [-32602]


def test_a_repeated_key_is_judged_as_the_server_reads_it(tmp_path: Path) -> None:
    """What goes on is written anew from what was judged, so that both read the same."""
    fail_last = write(tmp_path, id=7).replace('"name": "write"', '"name": "write", "name": "fail"')
    write_last = write(tmp_path, id=8).replace('"name": "write"', '"name": "fail", "name": "write"')
    answers, server_log = talk(tmp_path, fail_last, write_last, ids=(7, 8))

    assert server_log.splitlines().count("tools/call") == 1
    assert not (tmp_path / "written").exists()
    assert [answer["result"]["isError"] for answer in answers if answer.get("id") == 8] == [True]


def test_arguments_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    """A rule on `$.path` would see the one, and the server may read the other."""
    params = {"name": "read", "arguments": {"path": "safe", "Path": "/etc/passwd"}}
    answers, server_log = talk(tmp_path, write(tmp_path, id=7, params=params))

    assert "tools/call" not in server_log
    assert [answer["error"]["code"] for answer in answers if answer.get("id") == 7] == [-32602]


def test_an_answer_that_nobody_asked_for_is_dropped(tmp_path: Path) -> None:
    """A client's answer to a request its server never made is no part of the protocol."""
    answers, _ = talk(tmp_path, json.dumps({"jsonrpc": "2.0", "id": 99, "result": {"method": "tools/call"}}))

    assert [answer["id"] for answer in answers] == ["hello", "last"]


def test_over_http_too(tmp_path: Path) -> None:
    """The same messages, posted to a session."""
    with ProxyOverHttp(tmp_path) as (url, log):
        session = post(url, HELLO)[1]["mcp-session-id"]
        post(url, READY, **{"mcp-session-id": session})
        for odd in ODD_IDS:
            post(url, json.loads(write(tmp_path, id=odd)), **{"mcp-session-id": session})
        post(url, json.loads(last_ping()), **{"mcp-session-id": session})

        assert "tools/call" not in log.read_text()


def test_a_page_of_another_origin_starts_no_server(tmp_path: Path) -> None:
    """DNS rebinding: origin and host are looked at before the server's process is started."""
    with ProxyOverHttp(tmp_path) as (url, log):
        statuses = [post(url, HELLO, **{name: value})[0] for name, value in FOREIGN.items()]

        assert set(statuses) <= {403, 421}
        assert not log.exists()

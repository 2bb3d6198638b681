"""A server of the Python SDK behind the proxy, with clients that try to reach a denied tool; and hostile servers,
which attack their client, the proxy or its operator.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proxy_processes import HELLO, HOSTILE, READY, Talk, call, line_of, talk

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")

from proctor.adapters.mcp_proxy.messages import greeting, version_of

REAL = Path(__file__).parents[1] / "adapters" / "mcp_proxy" / "server.py"


def request(method: str, id: Any = 7, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notice(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})


def attempts(path: str) -> dict[str, list[str]]:
    """Attempts to run the denied tool."""
    denied = {"name": "write", "arguments": {"path": path}}
    body = {"jsonrpc": "2.0", "method": "tools/call"}
    proper = json.dumps({**body, "id": 7, "params": denied})
    cancelled = notice("notifications/cancelled", requestId=7)
    return {
        "as it is": [proper],
        "before the handshake is done": [line_of(HELLO | {"id": "again"}).decode(), proper],
        "after a second handshake": [line_of(HELLO | {"id": "h2"}).decode(), line_of(READY).decode(), proper],
        "after a ping of its id": [request("ping"), proper],
        "twice under one id": [proper, proper],
        "behind a permitted call of its id": [call("add", 7, a=1, b=2), proper],
        "before a permitted call of its id": [proper, call("add", 7, a=1, b=2)],
        "after a cancelled call of its id": [call("add", 7, a=1, b=2), cancelled, proper],
        "cancelled and asked again": [proper, cancelled, proper],
        "cancelled before it is asked": [cancelled, proper],
        "cancelled without a request": [notice("notifications/cancelled"), proper],
        "cancelled by an object": [notice("notifications/cancelled", requestId={"id": 7}), proper],
        "cancelled by a list": [json.dumps({**body, "method": "notifications/cancelled", "params": [7]}), proper],
        "as a notice": [json.dumps({**body, "params": denied})],
        "as a notice that the protocol has": [notice("notifications/progress", progressToken=7, **denied)],
        "as a notice of another name": [notice("notifications/tools/call", **denied)],
        "in a list": [f"[{proper}]"],
        "in a list with a ping": [f"[{request('ping', 8)}, {proper}]"],
        "by position": [json.dumps({**body, "id": 7, "params": ["write", {"path": path}]})],
        "without parameters": [json.dumps({**body, "id": 7}), json.dumps({**body, "id": 8, "params": None})],
        "its name in a list": [request("tools/call", name=["write"], arguments={"path": path})],
        "its name an object": [request("tools/call", name={"name": "write"}, arguments={"path": path})],
        "no name but one below": [request("tools/call", arguments=denied)],
        "its name among the arguments": [call("add", 7, a=1, b=2, name="write", path=path)],
        "a name beside the name": [
            request("tools/call", **denied, tool="add"),
            request("tools/call", 8, **denied, Name="add"),
        ],
        "with a title": [request("tools/call", **denied, title="add")],
        "its arguments as text": [request("tools/call", name="write", arguments=json.dumps({"path": path}))],
        "its arguments in a list": [request("tools/call", name="write", arguments=[{"path": path}])],
        "in the meta of another": [request("tools/call", name="add", arguments={"a": 1, "b": 2}, _meta=denied)],
        "with a meta of its own": [request("tools/call", **denied, _meta={"name": "add", "progressToken": 7})],
        "as a task": [request("tools/call", **denied, task={"ttl": 1})],
        "with input responses": [request("tools/call", **denied, inputResponses={}, requestState="x")],
        "as a prompt": [request("prompts/get", name="write", arguments={"path": path})],
        "as a resource": [
            request("resources/read", uri="small://write"),
            request("resources/read", 8, uri=f"file://{path}"),
        ],
        "as a completion": [
            request(
                "completion/complete",
                ref={"type": "ref/prompt", "name": "write"},
                argument={"name": "path", "value": path},
            )
        ],
        "under another method": [
            request("tools/run", **denied),
            request("tool/call", 8, **denied),
            request("call", 9, **denied),
        ],
        "with a prefix": [
            call("mcp__small__write", 7, path=path),
            call("small.write", 8, path=path),
            call("small/write", 9, path=path),
        ],
        "in other letters": [call("Write", 7, path=path), call("WRITE", 8, path=path), call("wrıte", 9, path=path)],  # noqa: RUF001
        "with a sign behind": [
            call("write;", 7, path=path),
            call("write()", 8, path=path),
            call("write*", 9, path=path),
        ],
        "by a path": [call("./write", 7, path=path), call("../write", 8, path=path)],
        "without a version": [json.dumps({"id": 7, "method": "tools/call", "params": denied})],
        "of another version": [json.dumps({**body, "jsonrpc": "1.0", "id": 7, "params": denied})],
        "an answer and a request": [json.dumps({**body, "id": 7, "params": denied, "result": {}})],
        "an error and a request": [
            json.dumps({**body, "id": 7, "params": denied, "error": {"code": 1, "message": "m"}})
        ],
        "a method twice": [
            proper.replace('"method"', '"method": "ping", "method"'),
            proper.replace('"id"', '"method": "tools/call", "id"'),
        ],
        "a name twice": [proper.replace('"name"', '"name": "add", "name"')],
        "parameters twice": [proper.replace('"params"', '"params": {"name": "add"}, "params"')],
        "an id twice": [proper.replace('"id"', '"id": null, "id"'), proper.replace('"id": 7', '"id": 7, "id": null')],
        "an id of great size": [json.dumps({**body, "id": 10**30, "params": denied})],
        "an id that is text": [
            json.dumps({**body, "id": "7", "params": denied}),
            json.dumps({**body, "id": "", "params": denied}),
        ],
        "a negative id": [json.dumps({**body, "id": -1, "params": denied})],
        "behind a long one": [request("ping", 8, pad="x" * 2_000_000), proper],
        "behind a deep one": ['{"a":' * 900 + "1" + "}" * 900, proper],
        "as the client's answer": [json.dumps({"jsonrpc": "2.0", "id": 1, "result": {**body, "params": denied}})],
        "by the newest handshake": [request("server/discover", "d"), proper],
        "subscribed": [request("resources/subscribe", uri="small://greeting"), proper],
    }


def test_no_client_reaches_a_denied_tool_of_a_real_server(tmp_path: Path) -> None:
    """The SDK's server writes no file, the connection stays open, and the proxy exits normally."""
    ways = attempts("x")
    lines = [
        line.replace('"x"', json.dumps(str(tmp_path / f"written-{number}"))).replace(": 7", f": {number * 10 + 1000}")
        for number, way in enumerate(ways)
        for line in attempts("x")[way]
    ]
    done = talk(tmp_path, *lines, call("write", 2007), call("add", 2008, a=1, b=2), ids=(2008,), server=REAL)

    assert [way for number, way in enumerate(ways) if (tmp_path / f"written-{number}").exists()] == []
    assert done.result(2007)["isError"]
    assert done.result(2008)["structuredContent"]
    assert [line for line in done.shown.splitlines() if not line.startswith("proctor: ")] == []
    assert done.code == 0


def test_a_call_before_the_handshake_is_evaluated(tmp_path: Path) -> None:
    """The gate does not wait for `initialize`."""
    path = tmp_path / "written"
    denied = call("write", 7, path=str(path))
    done = talk(tmp_path, denied, line_of(HELLO).decode(), hello=False)

    assert not path.exists()
    assert done.result(7)["isError"]


HELLO_RESULT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "h", "version": "1"},
}
GREETINGS: dict[str, Any] = {
    "capabilities in a list": HELLO_RESULT | {"capabilities": ["tools"]},
    "capabilities that are text": HELLO_RESULT | {"capabilities": "tools"},
    "tools that are true": HELLO_RESULT | {"capabilities": {"tools": True, "tasks": {"list": {}}}},
    "a version in an object": HELLO_RESULT | {"protocolVersion": {"a": 1}},
    "a version with a line break": HELLO_RESULT | {"protocolVersion": "1\r\nx: y"},
    "no version": {"capabilities": {}},
    "nothing": {},
}


@pytest.mark.parametrize("odd", GREETINGS.values(), ids=GREETINGS)
def test_an_odd_initialize_result_offers_no_task(odd: Any) -> None:
    """The client validates the result; the proxy is careful with the fields that it needs."""
    passed_on = greeting(odd)

    assert isinstance(passed_on["capabilities"], dict)
    assert "tasks" not in passed_on["capabilities"]
    assert version_of(odd) in (None, "2025-06-18")


def test_an_odd_initialize_result_does_not_end_the_connection(tmp_path: Path) -> None:
    """Later calls are evaluated and answered."""
    odd = GREETINGS["a version with a line break"] | {"capabilities": {"tools": True, "tasks": {"list": {}}}}
    done = talk(tmp_path, call("write", 7), call("read", 8), ids=(8,), server=HOSTILE, answers={"initialize": odd})

    assert done.result(7)["isError"]
    assert not done.result(8).get("isError")
    assert done.code == 0


TOOL = {"name": "read", "inputSchema": {"type": "object"}}
LISTS: dict[str, Any] = {
    "a number": {"tools": 5},
    "an object": {"tools": {"write": TOOL}},
    "text": {"tools": "write"},
    "nothing": {"tools": None},
    "names that are none": {
        "tools": [{"name": 5}, {"name": None}, {"name": ["write"]}, {"name": {}}, {}, "write", 7, None]
    },
    "names that do not show": {
        "tools": [{"name": "re\u202ead"}, {"name": "read\u200b"}, {"name": "\x1b[2J"}, {"name": ""}]
    },
    "names with blanks": {"tools": [{"name": " write"}, {"name": "write\n"}, {"name": "w" * 10_000}]},
    "another key": {"Tools": [TOOL | {"name": "write"}], "tools": []},
}


def test_a_list_of_tools_contains_no_odd_or_denied_tool(tmp_path: Path) -> None:
    """Neither a tool that nobody could call nor a denied one, also if the server reports that its tools have changed.
    The connection stays open.
    """
    changed = notice("notifications/tools/list_changed").encode().hex()
    more = {"tools": [TOOL, TOOL | {"name": "write"}, TOOL | {"name": "write", "title": "read"}], "nextCursor": "x"}
    odd = [request("tools/list", number) for number, _ in enumerate(LISTS)]
    done = talk(
        tmp_path,
        *(*odd, request("tools/list", 80), call("read", 81), request("tools/list", 82), call("write", 83)),
        ids=(81, 82, 83),
        server=HOSTILE,
        answers={"tools/list": [*LISTS.values(), more, more], "before tools/call": [changed]},
    )

    assert [done.result(number)["tools"] for number, _ in enumerate(LISTS)] == [[]] * len(LISTS)
    assert [tool["name"] for id in (80, 82) for tool in done.result(id)["tools"]] == ["read", "read"]
    assert not done.result(81).get("isError")
    assert done.result(83)["isError"]
    assert done.code == 0


SECRET = "sk-ant-api03-" + "a" * 80
SAID = f"a\x1b[2J\x1b]0;t\x07b\u202ec\x9b31m {SECRET}"
WRITTEN = {
    "text": SAID.encode(),
    "no message": json.dumps({"x": SAID}).encode(),
    "an unknown method": json.dumps({"jsonrpc": "2.0", "method": SAID}).encode(),
    "another encoding": SAID.encode("utf-16"),
    "no encoding": b"\xff\xfe\x1b[2J" + SECRET.encode(),
    "half a message": b'{"jsonrpc": "2.0", "id": 1, "res',
    "an answer to nothing": b'{"jsonrpc": "2.0", "id": 9999, "result": {}}',
    "an answer under no id": b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}}',
    "a list": b'[{"jsonrpc": "2.0", "id": 1, "result": {}}]',
    "depth": b"[" * 100_000,
    "an answer under `true`": b'{"jsonrpc": "2.0", "id": true, "result": {}}',
}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_output_of_a_server_outside_the_protocol_harms_nobody(form: tuple[str, ...], tmp_path: Path) -> None:
    """On its standard output and error: calls continue, and the operator's terminal gets text without escapes or
    keys.
    """
    lines = [line.hex() for line in WRITTEN.values()]
    answers = {"before tools/call": lines, "stderr": lines}
    done = talk(tmp_path, call("write", 7), call("read", 8), ids=(8,), server=HOSTILE, answers=answers, more=form)

    assert not done.result(8).get("isError")
    assert done.code == 0
    assert SECRET not in done.shown
    assert [shown for shown in done.shown.splitlines() if not shown.isprintable()] == []
    assert "Traceback" not in done.shown
    assert "the MCP server wrote something that is not a message: " in done.shown
    assert len(done.shown.splitlines()) >= 2 * len(WRITTEN) - 3


def test_an_answer_that_cannot_be_parsed_is_an_error(tmp_path: Path) -> None:
    """Otherwise its client would wait for ever. A lone surrogate is accepted: JavaScript writes one if it cuts a
    text.
    """
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    results = [{"structuredContent": deep}, {"content": [{"type": "text", "text": "cut \ud83d"}]}]
    calls = (call("read", 7), call("read", 8))
    done = talk(tmp_path, *calls, ids=(7, 8), server=HOSTILE, answers={"tools/call": results})

    assert done.error(7) == -32603
    assert done.result(8)["content"][0]["text"] == "cut \ufffd"


def test_an_endless_line_of_a_server_ends_the_connection_with_an_error(tmp_path: Path) -> None:
    """Lines are bounded, as a client's are, and every open request is answered."""
    done = talk(tmp_path, call("read", 8), ids=(8,), server=HOSTILE, answers={"before tools/call": [70_000_000]})

    assert "more than 67,108,864 bytes" in done.shown
    assert [m for m in done.got if m.get("id") == 8] != []
    assert done.code == 3


def test_unanswered_requests_of_a_server_are_bounded(tmp_path: Path) -> None:
    """Beyond a thousand, the server gets an error."""
    requests = [request("roots/list", f"r{n}").encode().hex() for n in range(1100)]
    done = talk(tmp_path, call("read", 8), ids=(8,), server=HOSTILE, answers={"before tools/call": requests})
    got = [json.loads(line) for line in done.server_log.splitlines()]

    assert len([m for m in done.got if m.get("method") == "roots/list"]) == 1000
    assert [m["id"] for m in got if m.get("error", {}).get("code") == -32600] == [f"r{n}" for n in range(1000, 1100)]


def test_a_server_may_ask_again_after_it_cancelled_a_request(tmp_path: Path) -> None:
    """A client does not answer a cancelled request, so it no longer counts as open."""
    odd = [notice("notifications/cancelled", requestId=id) for id in (None, ["r0"], {"id": "r0"}, True)]
    pairs = [
        line
        for n in range(1100)
        for line in (request("roots/list", f"r{n}"), notice("notifications/cancelled", requestId=f"r{n}"))
    ]
    lines = [line.encode().hex() for line in (*odd, *pairs)]
    done = talk(tmp_path, call("read", 8), ids=(8,), server=HOSTILE, answers={"before tools/call": lines})

    assert len([m for m in done.got if m.get("method") == "roots/list"]) == 1100
    assert done.code == 0


@pytest.mark.parametrize("failed", ["true", 1, [0], {"is": True}, "false"])
def test_a_result_that_a_client_may_read_as_an_error_is_no_success(failed: Any, tmp_path: Path) -> None:
    """Lenient clients read `"true"` and 1 as true, and a rule would take the call for completed."""
    policy = "{name: p, on_violation: deny, rules: [{type: before, first: read, then: deploy}]}"
    odd = {"content": [], "isError": failed}
    with Talk(tmp_path, server=HOSTILE, answers={"tools/call": odd}, policy=policy) as client:
        client.send(call("read", 7))
        client.until(7)
        client.send(call("deploy", 8))
        client.until(8)

    assert client.result(7)["isError"] == failed
    assert client.result(8)["isError"] is True
    assert client.server_log.count("tools/call") == 1


TAKING_JSON = """
from pathlib import Path
from mcp.server import MCPServer

server = MCPServer("taking")


@server.tool()
def keep(to: dict[str, str]) -> str:
    Path(to["file"]).write_text("kept")
    return "kept"


@server.tool()
def run(args: list[str]) -> str:
    Path(args[-1]).write_text("ran")
    return "ran"


@server.tool()
def store(files: list[str]) -> str:
    for file in files:
        Path(file).write_text("stored")
    return "stored"


server.run("stdio")
"""
INSIDE = """
name: p
on_violation: deny
tool_rules:
  - deny:
      - {tool: keep, where: [{path: $.to.file, contains: secret}]}
      - {tool: run, where: [{path: "$.args[0]", equals: rm}]}
      - {tool: run, where: [{path: "$.args[*]", equals: sudo}]}
      - {tool: run, where: [{path: $.args, regex: ^curl}]}
      - {tool: run, where: [{path: $.args, runs: git push}]}
      - {tool: store, where: [{not: [{path: $.files, within: FOLDER/mine}]}]}
"""


def test_an_argument_with_json_as_text_is_evaluated_as_the_server_decodes_it(tmp_path: Path) -> None:
    """The SDK decodes the text of an object or a list, as some clients send only text (`pre_parse_json`)."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "server.py").write_text(TAKING_JSON)
    tried: list[tuple[str, str, Callable[[str], object]]] = [
        ("keep", "to", lambda file: {"file": f"{file}-secret"}),
        *(
            ("run", "args", lambda file, words=words: [*words, file])
            for words in (["rm"], ["ls", "sudo"], ["curl", "x"], ["git", "push"], ["git", "-C", "d", "push"])
        ),
        ("store", "files", lambda file: [file]),
        ("store", "files", lambda file: [f"FOLDER/mine/{Path(file).name}", file]),
    ]
    lines = []
    for number, (tool, key, given) in enumerate(tried):
        value = json.dumps(given(f"FOLDER/written-{number}")).replace("FOLDER", str(tmp_path))
        spelled = (value, f" {value}", value.replace("s", "\\u0073"), value.replace(": ", ":").replace(", ", ",\n"))
        lines += [call(tool, 100 * number + n, **{key: text}) for n, text in enumerate(spelled)]
    honest = json.dumps({"file": str(tmp_path / "honest")})
    policy = INSIDE.replace("FOLDER", str(tmp_path))
    done = talk(
        tmp_path, *lines, call("keep", 2008, to=honest), ids=(2008,), server=tmp_path / "server.py", policy=policy
    )

    assert [*tmp_path.glob("written*"), *(tmp_path / "mine").iterdir()] == []
    assert (tmp_path / "honest").exists()
    assert done.code == 0

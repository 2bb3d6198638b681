"""The requests to an MCP server, and its answers, are those that `proctor mcp` evaluated: ids, names, arguments,
bytes.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from proxy_processes import LENIENT, Talk, call, talk

pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")

DEPLOY = "{name: p, on_violation: deny, rules: [{type: before, first: hold%s, then: deploy}]}"
PATHS = (
    "{name: p, on_violation: deny, tool_rules: [{deny: [{tool: save, where: [{path: $.to.path, regex: ^/etc}]}]}]}"
)


class Holding(Talk):  # type: ignore[misc]
    """A client with a server that accepts too much."""

    def __init__(self, folder: Path, policy: str) -> None:
        super().__init__(folder, policy=policy, server=LENIENT)
        self.until("hello")

    def call(self, tool: str, id: Any, **arguments: Any) -> bool:
        """Whether a call succeeds."""
        self.send(call(tool, id, **arguments))
        self.until(id)
        return not self.answer(id).get("result", {"isError": True}).get("isError")

    def held(self, tool: str, id: Any) -> None:
        """Make a call that the server gets and does not answer."""
        before = self.server_log.count('"hold')
        self.send(call(tool, id))
        number = 0
        while self.server_log.count('"hold') == before:
            self.call("look", f"look-{id}-{number}")
            number += 1

    def withdraw(self, id: Any) -> None:
        """Cancel a request; the proxy has read the cancellation when this returns."""
        params = {"requestId": id, "reason": "changed my mind"}
        self.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        self.call("look", f"seen-{id}")


@pytest.fixture
def talks(tmp_path: Path) -> Iterator[Any]:
    """Creates clients under a policy; they disconnect at the end."""
    with ExitStack() as stack:
        yield lambda policy: stack.enter_context(Holding(tmp_path, policy))


def test_an_id_that_the_server_rounds_answers_no_other_call(talks: Any) -> None:
    """JavaScript reads 2**53 + 1 as 2**53, so the answer of one call would be the evidence of another."""
    talk = talks(DEPLOY % "")
    talk.held("hold", 2**53)

    assert talk.call("read", 2**53 + 1)
    assert not talk.call("deploy", 3)
    assert talk.call("release", 4)
    assert talk.call("deploy", 5)


def test_an_answer_to_a_cancelled_call_does_not_answer_the_next_call_with_its_id(talks: Any) -> None:
    """A server may answer a cancelled request. Otherwise a failing call with the same id would have succeeded."""
    talk = talks(DEPLOY % "_test")
    talk.held("hold", 7)
    talk.withdraw(7)
    talk.held("hold_test", 7)
    talk.call("release", 8)

    assert talk.result(7)["isError"]
    assert not talk.call("deploy", 9)


def test_a_cancelled_call_that_the_server_completes_has_completed(talks: Any) -> None:
    """Otherwise any number could run under a limit on completed calls. A cancellation with an unknown id cancels
    nothing: neither `true` nor `"1"` is the id 1.
    """
    talk = talks("{name: p, on_violation: deny, rules: [{type: count, tool: hold, max: 2, of: completed}]}")
    talk.held("hold", 1)
    for withdrawn in (True, 1.0, [1], {"id": 1}, None, "1"):
        talk.withdraw(withdrawn)
    talk.call("release", 2)
    assert "result" in talk.answer(1)

    talk.held("hold", 3)
    talk.withdraw(3)
    talk.call("release", 4)
    talk.send(call("hold", 5))

    talk.until(5)
    assert talk.result(5)["isError"]
    assert talk.server_log.count('"hold"') == 2


def test_an_answer_that_is_also_a_request_is_passed_on_as_an_answer(talks: Any) -> None:
    """The server has sent the client a request with the id 1, and would read the method before the result."""
    talk = talks("{name: p, on_violation: deny, tool_rules: [{deny: [write]}]}")
    both = {"id": 1, "result": {}, "method": "tools/call", "params": {"name": "write"}}
    talk.send(*(json.dumps({"jsonrpc": "2.0", **both, "id": id}) for id in (1, "1", 1.0, True)))
    talk.send(json.dumps({"jsonrpc": "2.0", **both, "error": {"code": 1, "message": "m"}}))

    assert talk.call("read", 9)
    assert "write" not in talk.server_log


BIG = "9" * 400
NUMBERS = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", f"{BIG}.0", BIG, f"-{BIG}"]


def test_arguments_that_a_server_may_read_differently_never_reach_it(tmp_path: Path) -> None:
    """Numbers outside JSON would become `null`, and JavaScript reads a huge number so, which is no limit at all. It
    rounds 2**53 + 1, which matters if a policy compares it, and finds `path` in the value of `__proto__`. Go's
    encoding/json fills `path` from `Path`, and an `s` from the long s, at every depth.
    """
    allowed = "{allow: [{tool: pay, where: [{path: $.most, gte: 1}]}, save]}"
    policy = PATHS.replace("tool_rules: [", f"tool_rules: [{allowed}, ")
    numbers = [call("pay", 10 + n, most="@").replace('"@"', number) for n, number in enumerate(NUMBERS)]
    numbers += [call("pay", 20 + n, most=5, more=["@"]).replace('"@"', number) for n, number in enumerate(NUMBERS)]
    inside = [{"Path": "/etc/x"}, {"path": "safe", "PATH": "/etc/x"}, {"more": [{"pAth": 1}]}, {"path\0": "/etc/x"}]
    keys = [call("save", n, to=arguments) for n, arguments in enumerate(inside)]
    keys += [call("save", 5, To={"path": "/etc/x"}), call("save", 6, a={"\u017f": 1, "s": 2})]
    keys += [call("pay", 30, most=2**53 + 1), call("save", 31, to={"path": [{"id": 2**53 + 1}]})]
    keys.append(call("save", 32, to={"__proto__": {"path": "/etc/x"}}))
    fine = [call("save", 7, to={}), call("pay", 99, most=5)]
    fine += [call("pay", 98, most=2**53 + 2, user=2**53 + 1)]
    done = talk(tmp_path, *numbers, *keys, *fine, policy=policy, server=LENIENT, ids=(7, 98, 99))

    assert (done.server_log.count('"pay"'), done.server_log.count('"save"')) == (2, 1)
    assert {done.error(n) for n in (*range(10, 18), *range(20, 28), 30, 31, 32, 0, 1, 2, 3, 5, 6)} == {-32602}


ODD_NAMES = ["write ", " write", "write\n", "write\x00", "\u200bwrite", "ｗrite", "wri\u00adte", "", "w" * 1000]  # noqa: RUF001


def test_odd_names_and_lines_that_are_not_one_message_never_reach_the_server(tmp_path: Path) -> None:
    """A byte-order mark, NUL, another encoding, two messages on a line; the connection stays open. A name may be read
    as another through blanks around it, invisible characters, or Unicode equivalents.
    """
    names = [call(name, 100 + n) for n, name in enumerate(ODD_NAMES)]
    denied = call("write", 7).encode()
    ping = json.dumps({"jsonrpc": "2.0", "id": 8, "method": "ping"}).encode()
    cut = call("read", 9, text="@").encode().replace(b'"@"', b'"\\ud83d"')
    odd = [
        cut,
        b"\xef\xbb\xbf" + denied,
        b"\x00" + denied,
        denied + b"\x00",
        denied.decode().encode("utf-16-le").replace(b"\n", b""),
        ping + b"\r" + denied,
        ping + b"\x0b" + denied,
        b"\x1e" + denied,
        denied.replace(b'"write"', b'"wr\xff\xfeite"'),
        denied.replace(b'"write"', b'"wr\\ud800ite"'),
        b"Content-Length: 9\r",
        denied.replace(b'{"name"', b"/* */" + b'{"name"'),
        denied.replace(b"tools/call", b"tools\\u002fcall"),
        denied.replace(b'"method"', b'"meth\\u006fd"'),
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b"[" * 200_000,
    ]
    done = talk(tmp_path, *names, *odd, call("read", 99), server=LENIENT, ids=(99,))

    assert "wr" not in done.server_log
    assert done.server_log.count("tools/call") == 1
    assert {done.error(100 + n) for n in range(len(ODD_NAMES))} == {-32602}
    assert done.error(9) == -32700, "whoever asked need not wait"
    assert any(answer.get("id") == "last" for answer in done.got)

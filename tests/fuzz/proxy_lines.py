"""Lines that a client writes to `proctor mcp`, most of them almost valid."""

import json
import random
from typing import Any, Final

_IDS: Final[list[Any]] = [*range(3, 30), 1, 2, "1", "a", 2**53, 2**53 + 1, True, 1.0, None, [1], {"a": 1}, -1]
_NAMES: Final = [*["read", "fail", "hold", "write"] * 4, "Write", "write ", "wr\u0131te", "", "fail"]
_METHODS: Final = ["tools/call", "tools/Call", "tools/call ", "ping", "tools/list", "tasks/get", "notifications/x"]
_VALUES: Final = [
    *['"x"', "1", "null", '"y"'] * 3,
    "NaN",
    "1e999",
    "{}",
    '{"Path": "x"}',
    '{"path": 1, "PATH": 2}',
    "[[1]]",
    "1.0",
]
_ODD: Final = [
    *(b"\xef\xbb\xbf", b"\x00", b"\r", b"\xff", b" ", b"\x0b", b"\x1e", b"\\u0000", b'"', b"}", b"{", b"[", b",")
]


class Lines:
    """Lines of a client, most of them almost valid."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def line(self) -> bytes:
        line = self._message().encode("utf-8", "surrogatepass")
        for _ in range(self._rng.choice([0] * 9 + [1, 1, 3])):
            at = self._rng.randrange(len(line) + 1)
            cut = at + self._rng.choice([0, 0, 1, 4])
            line = line[:at] + self._rng.choice([b"", *_ODD]) + line[cut:]
        return line.replace(b"\n", b"")

    def _message(self) -> str:
        rng = self._rng
        kind = rng.choice(["call"] * 9 + ["odd", "cancel", "answer", "batch", "twice", "ping"])
        id = json.dumps(rng.choice(_IDS))
        if kind == "cancel":
            return f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}'
        if kind == "answer":
            return f'{{"jsonrpc":"2.0","id":{id},"result":{{}},"method":"tools/call","params":{self._params()}}}'
        if kind == "ping":
            return f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}'
        method = "tools/call" if kind != "odd" else rng.choice(_METHODS)
        call = f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{self._params()}}}'
        if kind == "batch":
            return f"[{call}]"
        if kind == "twice":
            key = rng.choice(['"method":"ping"', '"Method":"tools/call"', '"id":7', f'"params":{self._params()}'])
            return call[:-1] + "," + key + "}"
        return call

    def _params(self) -> str:
        rng = self._rng
        keys = rng.sample(["path", "path", "n", "m", "to", "Path", "path\\u0000"], rng.choice([0, 1, 1, 2]))
        arguments = ",".join(f'"{key}":{rng.choice(_VALUES)}' for key in keys)
        more = rng.choice(
            [*[""] * 12, ',"Name":"write"', ',"name":"write"', ',"task":{}', ',"_meta":{"progressToken":1}']
        )
        name = json.dumps(rng.choice(_NAMES))
        return (
            f'{{"name":{name},"arguments":{{"token":{rng.randrange(10**9)}{"," if keys else ""}{arguments}}}{more}}}'
        )

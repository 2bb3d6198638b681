"""Bytes that Claude Code could write to a hook, and the hook's answers.

A bypass is a call that the client would run although the policy denies the client's reading of these bytes, although
it is not recorded, or although it exceeds the limit; or a denial in a form that the client would not obey.
"""

import contextlib
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from proctor.adapters.hooks import daemon_client
from proctor.adapters.hooks.clients import claude
from tests.hook_processes import decider_for

from .ledger import Share

STORES: Final = 5
"""Of one share: one session after another of the same client."""
HOOKS: Final = 120
MOST: Final = 6
POLICY: Final = (
    "{name: p, on_violation: deny, limits: {max_tool_calls: {max: 6, scope: session}}, tool_rules: [{deny: [write]},"
    " {deny: [{tool: bash, where: [{path: $.command, contains: never}]}]}]}"
)
_ODD: Final = [
    *(b"\xef\xbb\xbf", b"\x00", b"\xff", b" ", b"\\u0000", b"\\ud800", b'"', b"}", b"{", b"[", b",", b"1", b"e9")
]
_EVENTS: Final = [
    *["PreToolUse"] * 8,
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "UserPromptSubmit",
    "Stop",
]
_TOOLS: Final = [*["Bash"] * 6, "Write", "Read", "bash", "BASH", "mcp__a__b"]
_COMMANDS: Final = ["ls", "ls", "ls", "echo never", "", "x" * 300, "never"]


class Hooks:
    """The bytes of one hook after the other."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def hook(self) -> bytes:
        rng = self._rng
        fields = [
            ("session_id", rng.choice("rstuvw")),
            ("hook_event_name", rng.choice([*_EVENTS, "SessionEnd", "ConfigChange", "Other", 7])),
            ("prompt_id", rng.choice(["p1", "p2", ""])),
            ("tool_use_id", f"t{rng.randrange(6)}"),
            ("tool_name", rng.choice(_TOOLS)),
            ("tool_input", rng.choice([{"command": rng.choice(_COMMANDS)}] * 6 + [{}, [], "ls", {"command": 1}])),
            ("tool_calls", [{"tool_use_id": f"t{rng.randrange(6)}"}]),
            ("agent_id", rng.choice([None, "a"])),
        ]
        if rng.random() < 0.15:
            fields.append(rng.choice(fields))
        if rng.random() < 0.1:
            fields.remove(rng.choice(fields))
        if rng.random() < 0.3:
            rng.shuffle(fields)
        data = ("{" + ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in fields) + "}").encode()
        for _ in range(rng.choice([0] * 8 + [1, 2])):
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice([b"", *_ODD]) + data[at + rng.choice([0, 0, 1, 5]) :]
        return data


class Client:
    """A client with one store: the calls that it would run."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._folder = folder
        self._decider = decider_for(folder, POLICY)
        self.ran: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def try_bytes(self, data: bytes) -> Iterator[str]:
        """Send these bytes as `daemon_client` and `daemon` do; returns the bypasses."""
        if self._rng.random() < 0.1:  # the daemon was ended
            self._decider.close()
            self._decider = decider_for(self._folder, POLICY)
        self.counts["hooks"] += 1
        try:
            answer = claude.output(*self._decider.answer_hook(data))
        except Exception as error:
            self.counts["refused unread"] += 1
            yield from self._refused(data, str(error))
            return
        yield from self._answered(data, answer)

    def _refused(self, data: bytes, why: str) -> Iterator[str]:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = daemon_client.refuse(data, why)
        if code == 2:
            return
        refusal = json.loads(out.getvalue())
        read = _as_the_client(data)
        if read is None or read.get("hook_event_name") != "PreToolUse":
            return
        if refusal.get("hookSpecificOutput", {}).get("permissionDecision") != "deny":
            yield f"{refusal} does not refuse {data!r}"

    def _answered(self, data: bytes, answer: dict[str, Any]) -> Iterator[str]:
        read = _as_the_client(data)
        if read is None:
            yield f"what the client cannot have written was answered: {data!r}"
        elif read["hook_event_name"] == "PreToolUse" and "hookSpecificOutput" not in answer:
            self.counts["allowed"] += 1
            session = read["session_id"]
            self.ran[session] += 1
            given = read.get("tool_input", {})
            tool = read["tool_name"].casefold()
            if tool == "write" or (tool == "bash" and "never" in str(given.get("command"))):
                yield f"it would run {data!r}"
            if self.ran[session] > MOST:
                yield f"it would run call {self.ran[session]} of {MOST}: {data!r}"
        elif "hookSpecificOutput" in answer:
            self.counts["refused"] += 1

    def end(self) -> None:
        """Stop sending."""
        self._decider.close()


def _as_the_client(data: bytes) -> Any:
    """The client's reading of these bytes: JSON, the last of two keys; None if it is not JSON."""
    try:
        read = json.loads(data.decode("utf-8"), parse_constant=lambda _: 1 / 0)
    except (ValueError, RecursionError, ZeroDivisionError):
        return None
    return read if isinstance(read, dict) else None


def hook_wire(seed: int, number: int, stores: int = STORES) -> Share:
    """Generated hooks for a few stores."""
    counts: Counter[str] = Counter()
    found: list[str] = []
    for each in range(stores):
        rng = random.Random((seed * 1_000_003 + number) * 1_009 + each)
        hooks = Hooks(rng)
        with tempfile.TemporaryDirectory(prefix="proctor-fuzz-") as folder:
            client = Client(Path(folder), rng)
            for _ in range(HOOKS):
                found += [
                    f"store {each}, share {number} of seed {seed}: {way}" for way in client.try_bytes(hooks.hook())
                ]
            client.end()
        counts += client.counts
    return Share(dict(counts), found)

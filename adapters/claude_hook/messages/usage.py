"""What the client's own log says a session used: it tells hooks nothing of tokens.

The log of a session, and those of its sub-agents, are read from where the last hook stopped. A response is
written as several lines with one message id, each with the usage so far: the most that any of them says counts.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from proctor.policies.errors import EventError
from proctor.policies.events import TokenUsageUpdated

from .log_lines import LoggedTokens, used

_REMEMBERED = 32
_CALLS_REMEMBERED = 256
WAIT_S = 1.0
"""The client writes a response into its log and starts the hooks of its calls at the same time: seconds the log may
take until the call is in it, and with it what the response used."""
WAIT_AT_THE_END_S = 0.25
"""The same for the last response of a run, which nothing is decided on."""
_LOOK_S = 0.002
_CHUNK = 1024 * 1024


class OneLog(msgspec.Struct, rename={"text": "said"}):
    """How far one log was read: its tokens by model so far, its latest messages, its calls, and how its last text
    begins.
    """

    offset: int = 0
    totals: dict[str, LoggedTokens] = {}
    latest: dict[str, LoggedTokens] = {}
    calls: list[str] = []
    text: str = ""


class _State(msgspec.Struct):
    since: datetime
    logs: dict[str, OneLog] = {}


_states = msgspec.json.Decoder(_State)
_encoder = msgspec.json.Encoder()


class UsageLog:
    """The logs of one session.

    Args:
        path: the session's log, as the client names it.
        state: what `state` gave when the last hook had read it.
        since: without a state, responses before this are of runs that were not watched.
    """

    def __init__(self, path: str, state: bytes | None, since: datetime) -> None:
        self._main = Path(path) if path else None
        self._state = _states.decode(state) if state else _State(since)

    @property
    def state(self) -> bytes:
        """How far everything was read."""
        return _encoder.encode(self._state)

    def news(
        self, *, may_be_missing: bool, call_id: str = "", message: str = "", wait_s: float = 0.0
    ) -> list[TokenUsageUpdated]:
        """What was used since it was read last, one event a model. Raises EventError when that cannot be known.

        With `call_id` or `message` the log is waited for, up to `wait_s` seconds, until it has that call or the
        session's latest words are these.
        """
        before = self._totals()
        deadline = time.monotonic() + wait_s
        self._read_all(may_be_missing=may_be_missing or wait_s > 0)
        while not self._has(call_id, message) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            self._read_all(may_be_missing=True)
        if wait_s and not may_be_missing:
            self._read_all(may_be_missing=False)
        found = ((model, total.less(before.get(model, LoggedTokens()))) for model, total in self._totals().items())
        return [_event(model, added) for model, added in found if added != LoggedTokens()]

    def _has(self, call_id: str, message: str) -> bool:
        logs = self._state.logs
        if call_id:
            return any(call_id in log.calls for log in logs.values())
        main = self._main and logs.get(self._main.name)
        return not message or (isinstance(main, OneLog) and main.text == _start(message))

    def _read_all(self, *, may_be_missing: bool) -> None:
        main = self._main
        if main is not None and main.exists():
            for log in (main, *sorted((main.with_suffix("") / "subagents").rglob("*.jsonl"))):
                self._read(log, str(log.relative_to(main.parent)))
        elif not may_be_missing:
            raise EventError(f"there is no log of the session at `{main or ''}`, so what it used is not known")

    def _totals(self) -> dict[str, LoggedTokens]:
        totals: dict[str, LoggedTokens] = {}
        for log in self._state.logs.values():
            for model, tokens in log.totals.items():
                totals[model] = totals.get(model, LoggedTokens()).plus(tokens)
        return totals

    def _read(self, path: Path, name: str) -> None:
        before = self._state.logs.get(name) or OneLog()
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise EventError(f"the session's log `{path}` is not a file")
            log = before if found.st_size >= before.offset else OneLog()
            with path.open("rb") as file:
                for line in _whole_lines(file, log):
                    self._count(line, log)
        except OSError as error:
            raise EventError(f"the session's log `{path}` cannot be read: {error.strerror or error}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EventError(f"the session's log `{path}` cannot be read: {error}") from error
        if log is not before:  # the client wrote it anew: what was counted stays counted
            for model, tokens in before.totals.items():
                log.totals[model] = log.totals.get(model, LoggedTokens()).most(tokens)
        self._state.logs[name] = log

    def _count(self, line: bytes, log: OneLog) -> None:
        found = used(line)
        if found is None or (found.at is not None and found.at.tzinfo is not None and found.at < self._state.since):
            return
        log.calls = [*log.calls, *found.calls][-_CALLS_REMEMBERED:]
        log.text = _start(found.text) or log.text
        before = log.latest.pop(found.message, LoggedTokens()) if found.message else LoggedTokens()
        now = found.tokens.most(before)
        log.totals[found.model] = log.totals.get(found.model, LoggedTokens()).plus(now.less(before))
        if found.message:
            log.latest[found.message] = now
            while len(log.latest) > _REMEMBERED:
                del log.latest[next(iter(log.latest))]


def _whole_lines(file: BinaryIO, log: OneLog) -> Iterator[bytes]:
    """The lines from where the log was read to; one that is still being written stays for the next time."""
    file.seek(log.offset)
    rest = b""
    while chunk := file.read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            log.offset += len(line) + 1
            yield line


def _start(text: str) -> str:
    """As much of a text as it is known by."""
    return text.strip()[:200]


def _event(model: str, tokens: LoggedTokens) -> TokenUsageUpdated:
    return TokenUsageUpdated(
        model=model or None,
        input_tokens=tokens.input + tokens.read + tokens.written,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.read,
        cache_write_tokens=tokens.written,
        reasoning_tokens=tokens.thinking,
    )

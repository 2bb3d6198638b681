"""Which format a file is in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.traces import FORMATS, TraceError, read_sessions

SPAN = {"traceId": "t", "spanId": "a", "name": "chat x", "attributes": {"gen_ai.operation.name": "chat"}}
SAMPLES: dict[str, list[Any]] = {
    "events": [{"type": "run_started", "run_id": "r", "session_id": "s", "seq": 1}],
    "sessions": [{"id": "s", "events": []}],
    "claude": [
        {"type": "file-history-snapshot", "snapshot": {}},
        {"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user", "content": "hi"}},
    ],
    "codex": [{"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "s"}}],
    "otel": [SPAN],
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_recognised_by_its_first_lines(name: str, write: Callable[..., str]) -> None:
    """Without `--format`, also where other lines come first."""
    (session,) = read_sessions([write(*SAMPLES[name])])

    assert session.format == name


def test_an_export_laid_out_over_several_lines_is_otel(tmp_path: Path) -> None:
    """Only exporters of spans write JSON so."""
    path = tmp_path / "spans.json"
    path.write_text('{\n "resourceSpans": [{"scopeSpans": [{"spans": [\n' + str(SPAN).replace("'", '"') + "\n]}]}]}")

    (session,) = read_sessions([str(path)])

    assert (session.id, session.format) == ("t", "otel")


@pytest.mark.parametrize(("given", "detected"), [("claude", "events"), ("claude", "codex"), ("codex", "claude")])
def test_a_format_given_for_a_file_of_another_is_an_error(
    given: str, detected: str, write: Callable[..., str]
) -> None:
    """A log's reader passes over lines it does not know, so it would find a session in which nothing happened."""
    with pytest.raises(TraceError, match=f"in the format `{detected}`, not `{given}`"):
        list(read_sessions([write(*SAMPLES[detected])], format=given))


@pytest.mark.parametrize("content", [b'{"hello": 1}', b'{"type": []}', b"name,amount", b"[1]", b'"text"'])
def test_an_unrecognised_file_asks_for_the_format(content: bytes, write: Callable[..., str]) -> None:
    """The message says what to type."""
    with pytest.raises(TraceError, match=r"--format events\|sessions\|claude\|codex\|otel"):
        list(read_sessions([write(content)]))

"""Reading traces from files, gzip and standard input, and the errors."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.adapters.kit import trace_lines
from proctor.adapters.traces import TraceError, read_sessions
from proctor.policies.errors import ProctorError

SESSION = {"id": "s1", "events": [{"type": "tool_call", "id": "c1", "name": "read", "arguments": {}}]}


def ids(*paths: str, **how: object) -> list[str]:
    """The ids of the sessions in these paths."""
    return [session.id for session in read_sessions(paths, **how)]  # type: ignore[arg-type]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_read_with_anything_around_its_lines(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Gzip is recognised by its bytes, under any file name. Editors leave blank lines and a byte order mark."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(pack(b"\xef\xbb\xbf\n  \r\n" + json.dumps(SESSION).encode() + b"\r\n\n"))

    assert ids(str(path)) == ["s1"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dash_means_standard_input(pack: Callable[[bytes], bytes]) -> None:
    """Plain or compressed, from a stream that is not seekable."""
    stream = io.BytesIO(pack(json.dumps(SESSION).encode()))

    assert ids("-", stdin=stream) == ["s1"]


def test_a_folders_traces_are_read_in_the_order_of_their_names(write: Callable[..., str], tmp_path: Path) -> None:
    """Including subfolders. Other files and empty ones are skipped. A folder without traces is an error, as it must
    not pass for one without violations.
    """
    with pytest.raises(TraceError, match="no traces in it"):
        ids(str(tmp_path))
    write({**SESSION, "id": "b"}, name="b.jsonl")
    write({**SESSION, "id": "a"}, name="a/one.jsonl")
    write(b"not a trace", name="notes.txt")
    (tmp_path / "empty.jsonl").touch()

    assert ids(str(tmp_path)) == ["a", "b"]


SESSIONS: list[tuple[str | None, bytes, str]] = [
    ("sessions", content, message)
    for content, message in (
        (b"", "trace.jsonl: no sessions in it: the file is empty"),
        (b"\n\n", "trace.jsonl: no sessions in it: the file is empty"),
        (b'{"id": "s", "events": [}\n', "trace.jsonl:1: not JSON: invalid character at byte 23"),
        (b'{"id": "s", "events": [\n', "trace.jsonl:1: not JSON: it ends too early"),
        (b'{"id": "s"}\n', "trace.jsonl:1: `events` is missing"),
        (b'{"id": "s", "events": 3}\n', "trace.jsonl:1: expected a list, got a whole number at `$.events`"),
        (
            b'{"id": "s", "events": []}\n\n{"id": 7, "events": []}\n',
            "trace.jsonl:3: expected text, got a whole number",
        ),
        (b'{"id": "s", "events": []}\n{"id": "\xff", "events": []}\n', "trace.jsonl:2: not valid UTF-8"),
        (b'{"id": "s", "events": [' + b"[" * 5000 + b"]" * 5000 + b"]}\n", "trace.jsonl:1: "),
        (
            b'{"id": "s", "events": [{"type": "tool_call", "id": 5, "name": "x"}]}\n',
            "trace.jsonl:1: `events[0]`: expected text, got a whole number",
        ),
        (
            b'{"id": "s", "events": []}\n{"id": "t", "events": [{"input": {"a": 1, "\\u0061" : 2}}]}\n',
            "trace.jsonl:2: the key `a` is given twice",
        ),
        (b'{"id": "s", "events": [{"text": "x"}]}\n', "trace.jsonl:1: `events[0]` has no `type`"),
        (
            b'{"id": "s", "events": [{"type": "tool_call", "id": "c", "name": "bash", "args": {"command": "ls"}}]}\n',
            "trace.jsonl:1: `events[0]`: a call's input is its `arguments` or `input`, not `args`",
        ),
        (
            b'{"id": "s", "events": [{"type": "usage", "input_tokens": 2, "cache_creation_input_tokens": 500}]}\n',
            "trace.jsonl:1: `events[0]`: the amounts of a usage are input_tokens, ",
        ),
        (b'{"id": "s", "events": [{"type": "usage", "total_tokens": 5}]}\n', "not `total_tokens`"),
    )
]
ANY: list[tuple[str | None, bytes, str]] = [
    (None, b"\n\nhello\n", "trace.jsonl:3: not JSON; recorded sessions are lines of JSON"),
    (None, b'{"a": 1}\n', "trace.jsonl: no line tells the format; name it with `--format events|"),
    (None, b'\n{\n\n"a":\n "\xff"}', "trace.jsonl:5: not valid UTF-8"),
    (None, b"\n\n{\n\n x}", "trace.jsonl:5: not JSON: "),
    (None, b'\n{"spans":\n []}\n\n{"b":\n 2}', "trace.jsonl:5: not an OpenTelemetry span: "),
    ("otel", b'{"spans":\n [{"a": 2, "a": 3}]}', "trace.jsonl:2: the key `a` is given twice"),
    ("otel", b'{"spans": [],\n "spans": 2}', "trace.jsonl:1: the key `spans` is given twice"),
    (None, b'\n{"a":\n' + b"[" * 100_000, "trace.jsonl:2: nested too deeply"),
    (None, b'\n{"a":\n' + b"9" * 5_000 + b"}", "trace.jsonl:2: a number has too many digits"),
]


@pytest.mark.parametrize(("format", "content", "message"), [*SESSIONS, *ANY])
def test_bad_input_is_one_error_with_file_and_line(
    tmp_path: Path, format: str | None, content: bytes, message: str
) -> None:
    """One line for the reader, with the position. Blank lines count, and a value over several lines has the number of
    its first.
    """
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)

    with pytest.raises(TraceError) as caught:
        ids(str(path), format=format)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_error_can_be_caught_as_the_base_class_by_its_code(tmp_path: Path) -> None:
    """Callers branch on `code` and find the position without parsing the message."""
    missing = str(tmp_path / "missing.jsonl")

    with pytest.raises(ProctorError) as caught:
        ids(missing)

    error = caught.value
    assert isinstance(error, TraceError)
    assert (error.code, error.place, str(error)) == ("bad_trace", missing, f"{missing}: no such file or directory")


@pytest.mark.parametrize("cut", [12, 40, -4, None])
def test_a_truncated_or_damaged_gzip_file_is_an_error(tmp_path: Path, cut: int | None) -> None:
    """Its readable part is not taken for the whole."""
    packed = bytearray(gzip.compress(json.dumps(SESSION).encode() * 50)[:cut])
    if cut is None:
        packed[20:30] = b"\xff" * 10
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(packed)

    with pytest.raises(TraceError, match="gzip file" if cut is None else "the gzip file is cut short"):
        ids(str(path), format="sessions")


def test_an_endless_line_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would fill the memory."""
    monkeypatch.setattr(trace_lines, "MAX_LINE_BYTES", 1000)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"{" * 1001)

    with pytest.raises(TraceError, match=r"t\.jsonl:1: a line of more than 1000 bytes"):
        ids(str(path))


def test_sessions_are_returned_before_the_rest_is_read(tmp_path: Path) -> None:
    """A long file is evaluated while it is read, so an error at its end does not hide its beginning."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(SESSION).encode() + b"\nbroken\n")
    found = read_sessions([str(path)])

    assert next(found).id == "s1"
    with pytest.raises(TraceError, match=r"t\.jsonl:2: not JSON"):
        next(found)

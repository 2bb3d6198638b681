"""Fixtures: traces written for one test."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from proctor.adapters.traces import TraceSession, read_sessions

Write: TypeAlias = Callable[..., str]
ReadOne: TypeAlias = Callable[..., TraceSession]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write values as lines of JSON (bytes unchanged); returns the path."""

    def write_lines(*values: Any, name: str = "trace.jsonl") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (value if isinstance(value, bytes) else json.dumps(value).encode() for value in values)
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return str(path)

    return write_lines


@pytest.fixture
def read_one(write: Write) -> ReadOne:
    """Write values as lines of JSON and read the only session in them."""

    def read(*values: Any, format: str | None = None) -> TraceSession:
        (session,) = read_sessions([write(*values)], format=format)
        return session

    return read


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data"

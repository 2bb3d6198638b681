"""What the clients that are processes share: lines within bounds, last words, an end that leaves nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from proctor.adapters.kit.client_process import ClientProcess, start_client
from proctor.adapters.kit.jsonrpc import ByteLines, EndlessLineError
from proctor.supervisor.errors import ProviderUnavailableError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio

FAILING = r"""
import sys
print(sys.stdin.read())
sys.stderr.write("old\n" * 50 + "z" * 9999 + "\nlast\n")
sys.exit(3)
"""


class Pieces:
    """A stream of bytes that brings these pieces and ends."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """The next piece."""
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def aclose(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb", b"c\n"], [b"a", b"bc", b""]),
        ([b"a", b"b", b"\n\n", b"rest"], [b"ab", b"", b"rest"]),
        ([], [b""]),
    ],
)
async def test_lines_are_put_together_from_pieces(pieces: list[bytes], lines: list[bytes]) -> None:
    """What the stream ends with is the last."""
    assert [line async for line in ByteLines(Pieces(*pieces))] == lines  # type: ignore[arg-type]


async def test_a_line_without_end_is_an_error_after_those_before_it() -> None:
    """Its beginning is kept."""
    lines = ByteLines(Pieces(b"whole\n" + b"x" * 10, b"y" * 10), max_bytes=15)  # type: ignore[arg-type]
    first = await anext(lines)
    with pytest.raises(EndlessLineError) as caught:
        await anext(lines)

    assert first == b"whole"
    assert caught.value.start == b"x" * 10 + b"y" * 10


async def talking(script: str, folder: Path) -> tuple[list[bytes], ClientProcess]:
    """What a client that is a few lines of Python writes to its end, and the client."""
    command = [sys.executable, "-S", "-c", script]
    with anyio.fail_after(PATIENCE_S):
        async with start_client("it", command, cwd=folder, env=os.environ, mark=uuid4().hex) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.read_stderr)
                await client.write_input("told")
                lines = [line async for line in ByteLines(client.stdout)]
            await client.wait_exit()
            return lines, client


async def test_a_client_that_failed_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """The newest lines, each cut at its front."""
    lines, client = await talking(FAILING, tmp_path)
    error = client.exit_error("it failed")

    words = error.details["stderr"].split("\n")
    assert lines[0] == b"told"
    assert (str(error), error.details["exit_code"], words[-1], len(words)) == ("it failed", 3, "last", 20)
    assert len(words[-2]) == 4096


async def test_leaving_ends_a_client_that_does_not_leave_by_itself(tmp_path: Path) -> None:
    """Whether it would leave at the end of its input is known, and bounded."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(10000)"]
    for leaves in (True, False):
        with anyio.fail_after(PATIENCE_S):
            async with start_client(
                "it", command, cwd=tmp_path, env=os.environ, mark=uuid4().hex, leaves=leaves
            ) as client:
                assert client.exit_code is None

        assert client.exit_code == -9


async def test_a_client_that_cannot_be_started_is_named_with_what_to_do(tmp_path: Path) -> None:
    """In one error."""
    with pytest.raises(ProviderUnavailableError, match=r"it cannot be started: .*none.*; install it"):
        async with start_client("it", [str(tmp_path / "none")], cwd=tmp_path, env={}, mark="r", advice="install it"):
            pass

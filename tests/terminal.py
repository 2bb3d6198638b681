"""A program on a pseudo-terminal, with the screen that a person sees: `from terminal import Terminal`."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from proctor.supervisor.testing.fakes import PATIENCE_S


class Terminal:
    """A program on its own terminal; the size variables of the tests' terminal would override its size."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: Path | None = None,
        *,
        columns: int = 80,
        rows: int = 30,
    ) -> None:
        self._own, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {name: value for name, value in env.items() if name not in ("COLUMNS", "LINES")}
        self.settings = termios.tcgetattr(its)
        self.process = subprocess.Popen(
            command, stdin=its, stdout=its, stderr=its, env=env, cwd=cwd, start_new_session=True
        )
        self._its = its
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """The text on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def until(self, text: str, *, gone: bool = False) -> str:
        """Wait until this is on the screen, or is not."""
        deadline = time.monotonic() + PATIENCE_S
        while (text in self.text) is gone:
            assert time.monotonic() < deadline, self.text
            assert self.process.poll() is None, self.text
            self._read()
        return self.text

    def _read(self, wait_s: float = 0.1) -> bool:
        """Display what the program has written, or writes within a moment; whether it wrote anything."""
        has_more = bool(select.select([self._own], [], [], wait_s)[0])
        if has_more:
            self._stream.feed(os.read(self._own, 65536))
        return has_more

    def shows(self, text: str) -> bool:
        """Whether this is on the screen, once the program's output is displayed."""
        self._read()
        return text in self.text

    def press(self, keys: str) -> None:
        """Type them."""
        os.write(self._own, keys.encode())

    def ended(self) -> int:
        """Wait for its end, reading to the last output; returns the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read()
        while self._read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End its processes."""
        self.process.kill()
        self.process.wait()
        os.close(self._own)
        os.close(self._its)

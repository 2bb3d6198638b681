"""Makes the picture of the live view: `python -m docs.pictures.live`. Needs a POSIX system, for its terminal."""

from __future__ import annotations

import os
import pty
import re
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
COLUMNS = 118
NO_FONT_FROM_ELSEWHERE = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.S)


def shown() -> str:
    """What `proctor demo` shows on a terminal, colours and all."""
    with tempfile.TemporaryDirectory() as home:
        child, terminal = pty.fork()
        if child == 0:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "XDG_STATE_HOME": home, "PATH": path}
            os.execvp("proctor", ["proctor", "demo"])
        read = bytearray()
        while part := _read(terminal):
            read += part
        os.waitpid(child, 0)
    return read.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the child has ended
        return b""


def main() -> None:
    """Write `live.svg` beside this file."""
    live = shown().partition("\nrun  ")[0]
    console = Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w"), legacy_windows=False)  # noqa: SIM115
    console.print(Text.from_ansi(live[live.index("    0.0s") :]))
    console.save_svg(str(HERE / "live.svg"), title="proctor demo", code_format=NO_FONT_FROM_ELSEWHERE)


if __name__ == "__main__":
    main()

"""Real shells in isolation: a process namespace, a folder of their own, stubs for programs, and limits."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .lines import ROUTES, STUBS

_STUB: Final = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    const char *path = getenv("TRACE"), *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    int trace = open(path ? path : FALLBACK, O_WRONLY | O_CREAT | O_APPEND, 0666);
    static char text[65536];
    text[0] = 30;
    strncat(text, name, 250);
    for (int n = 1; n < argc; n++) {
        strcat(text, "\037");
        strncat(text, argv[n], 4000);
        if (strlen(text) > 60000) break;
    }
    write(trace, text, strlen(text));
    if (lseek(trace, 0, SEEK_END) > 20000) kill(getppid(), SIGKILL);
    return strcmp(name, "cmp") == 0;
}
"""
_FUNCTION: Final = (
    "{0}() {{ printf '%s\037' '\036{0}' \"$@\" >> \"$TRACE\"; TIMES=x$TIMES;"
    " [ ${{#TIMES}} -lt 40 ] || exit 9; [ {0} != cmp ]; }}"
)
"""A stub within a shell that forks for each line: ten times cheaper than a program."""
_LIMITS: Final = "ulimit -t 2 -f 2000 -c 0 -v 4000000 2>/dev/null"
_NAMESPACE: Final = ("/usr/bin/unshare", "-rpf", "--mount-proc", "--kill-child")


def can_be_closed() -> bool:
    """Whether this machine has the shells and allows process namespaces."""
    needed = (_NAMESPACE[0], "/bin/bash", "/bin/dash")
    return (
        all(map(os.path.exists, needed)) and subprocess.run([*_NAMESPACE, "/bin/true"], check=False).returncode == 0
    )


class ShellSandbox:
    """Where lines run.

    Args:
        folder: an empty folder, used only for this.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stubs = folder / "bin"
        self._traces = folder / "traces"
        self._work = folder / "work"
        for made in (self._stubs, self._traces, self._work):
            made.mkdir()
        self._make_stubs()
        for route in ROUTES:
            found = shutil.which("dash" if route == "sh" else route)
            if found is not None:
                (self._stubs / route).symlink_to(found)

    @property
    def environment(self) -> dict[str, str]:
        """The search path of the stubs and the real programs that run them, and nothing else."""
        return {"PATH": str(self._stubs), "TRACE": ""}

    def run(self, shell: Sequence[str], lines: Sequence[str], *, timeout_s: float, forks: bool) -> bool:
        """Run lines, one after the other; whether they ended in time, without ending their shell.

        Args:
            shell: the shell with its options, the last of which is `-c`.
            lines: the lines.
            timeout_s: seconds for all of them.
            forks: whether one shell forks for each line and evaluates it, with functions for stubs if no other
                program runs them, which is faster than a new shell and programs.
        """
        shutil.rmtree(self._traces)
        shutil.rmtree(self._work)
        self._traces.mkdir()
        self._work.mkdir()
        for place in [self._work] if forks else [self._work / str(number) for number in range(len(lines))]:
            self.place(place)
        (self._traces / "reached").write_text("0\n")
        (self._folder / "script").write_text(self._script(shell, lines, forks=forks))
        reader = shell[:-1] if forks else ["/bin/dash"]
        try:
            done = subprocess.run(
                [*_NAMESPACE, *reader, str(self._folder / "script")],
                cwd=self._work,
                env={**self.environment, "X": "x", "HOME": str(self._work)},
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                start_new_session=True,  # a namespace does not contain `kill 0`
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def reached(self) -> int:
        """The line at which the last run stopped."""
        return int((self._traces / "reached").read_text().split()[-1])

    def ran(self, number: int) -> set[str]:
        """The stubs that a line of the last run has run."""
        return {words[0] for words in self.commands(number)}

    def commands(self, number: int) -> set[tuple[str, ...]]:
        """The stubs that a line of the last run has run, each with its arguments."""
        trace = self._traces / str(number)
        written = trace.read_bytes().decode(errors="surrogateescape") if trace.exists() else ""
        return {tuple(record.removesuffix("\037").split("\037")) for record in written.split("\036")[1:]}

    def _script(self, shell: Sequence[str], lines: Sequence[str], *, forks: bool) -> str:
        script = [
            _LIMITS,
            "exec </dev/null >/dev/null 2>&1",
            *(_FUNCTION.format(name) for name in (*STUBS, "red") if forks),
        ]
        for number, line in enumerate(lines):
            script.append(f"echo {number} >> {self._traces}/reached")
            trace = f"TRACE={self._traces}/{number}"
            alone = f"(cd {number}; {trace} exec {shlex.join([*shell, line])})"
            script.append(f"({trace}; eval {shlex.quote(line)})" if forks else alone)
        return "\n".join([*script, "/bin/sleep 0.05", "exit 0"])

    def place(self, place: Path) -> Path:
        """A folder with two files that name a stub, and a program that runs it from a non-standard folder."""
        place.mkdir(exist_ok=True)
        for name in ("a", "f"):
            (place / name).write_text("red\n")
        (place / "d").mkdir()
        (place / "d" / "ls").write_text(f"#!/bin/dash\nexec {self._stubs}/red\n")
        (place / "d" / "ls").chmod(0o755)
        return place

    def _make_stubs(self) -> None:
        compiler = shutil.which("cc")
        stub = self._folder / "stub"
        if compiler is not None:
            source = self._folder / "stub.c"
            source.write_text(f'#define FALLBACK "{self._traces}/lost"\n{_STUB}')
            subprocess.run([compiler, "-O1", "-w", "-static", "-o", str(stub), str(source)], check=True)
        else:
            stub.write_text(
                '#!/bin/dash\nn=${0##*/}; printf "%s\\037" "$(printf "\\036")$n" "$@" >> "$TRACE"; [ "$n" != cmp ]\n'
            )
        stub.chmod(0o755)
        for name in (*STUBS, "red"):
            os.link(stub, self._stubs / name)

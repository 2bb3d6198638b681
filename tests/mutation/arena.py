"""Where one mutant runs at a time: a copy of the product, and a process namespace that ends with the run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

from proctor.adapters.kit.processes.guarded import guarded

from .areas import ROOT

Fate: TypeAlias = Literal["killed", "hung", "survived"]

FOLDERS: Final = ("policies", "supervisor", "adapters")
_CONTAINED: Final = ("unshare", "-rpf", "--mount-proc", "--kill-child")
_NOT_NEEDED: Final = ("cacheprovider", "langsmith_plugin")
_PYTEST: Final = ("-m", "pytest", "-q", "-x", "--tb=no", "-rN", *(f"-pno:{name}" for name in _NOT_NEEDED))
_MEMORY_BYTES: Final = 4 << 30


class Arena:
    """A copy of the product in which one module at a time is another.

    A mutant of the process tree ends every process that it can see: in a namespace of its own that is itself.
    """

    def __init__(self, folder: Path) -> None:
        self._package = folder / "proctor"
        self._package.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self._package / name, ignore=ignored)
        shutil.copy(ROOT / "adapters" / "package" / "__init__.py", self._package)
        self._environment = {**os.environ, "PYTHONPATH": str(folder), "CI": "true"}
        self._edits = 0

    def passes(self, tests: Sequence[str], limit_s: float) -> bool:
        """Whether the tests pass on the product as it stands in the arena; also writes its byte code."""
        return self._run(tests, limit_s) == "survived"

    def fate(self, module: str, text: str, tests: Sequence[str], limit_s: float) -> Fate:
        """What becomes of a mutant under these tests.

        Args:
            module: the path of its module in the repository.
            text: the module's text with the change.
            tests: in their order.
            limit_s: seconds of processor time they may take, and twice as many by the clock.
        """
        with self._edited(self._package / module, text):
            return self._run(tests, limit_s)

    @contextmanager
    def _edited(self, path: Path, text: str) -> Iterator[None]:
        kept, stat = path.read_bytes(), path.stat()
        self._edits += 1
        path.write_text(text)
        os.utime(path, (0, self._edits))  # no byte code is of that time
        try:
            yield
        finally:
            path.write_bytes(kept)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def _run(self, tests: Sequence[str], limit_s: float) -> Fate:
        environment = self._environment | ({"PYTHONDONTWRITEBYTECODE": "1"} if self._edits else {})
        limited = f'ulimit -t {int(limit_s)} -v {_MEMORY_BYTES >> 10}; exec "$@"'
        inner = ["sh", "-c", limited, "sh", sys.executable, *_PYTEST, *tests]
        command = guarded([*_CONTAINED, *inner], cwd=ROOT, env=environment)  # it ends with us
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as running:
            try:
                code = running.wait(limit_s * 2)
            except subprocess.TimeoutExpired:
                running.kill()  # and with it the namespace
                return "hung"
        if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGKILL):
            return "hung"
        return "survived" if code == 0 else "killed"


def can_contain() -> bool:
    """Whether this machine lets us make process namespaces."""
    found = shutil.which(_CONTAINED[0])
    return found is not None and subprocess.run([*_CONTAINED, "true"], check=False).returncode == 0


def seconds_of(arena: Arena, tests: Sequence[str]) -> float:
    """How long the tests take on the product itself, by the clock. Raises RuntimeError if they fail there."""
    start = time.monotonic()
    if not arena.passes(tests, 600):
        raise RuntimeError(f"these fail without a mutant: {' '.join(tests)}")
    return time.monotonic() - start

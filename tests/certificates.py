"""Self-signed certificates for hosts."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest


def certificate_of(host: str) -> tuple[bytes, bytes]:
    """A certificate for a name or an address, and its key."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs the extra `audit`: pip install '.[audit]'")
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    begins, ends = now - timedelta(hours=1), now + timedelta(1)
    made = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number(), begins, ends)
    named = x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host)
    signed = made.add_extension(x509.SubjectAlternativeName([named]), critical=False).sign(key, SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.public_bytes(Encoding.PEM), secret


def certificate_files(folder: Path, host: str) -> tuple[Path, Path]:
    """The same as files in a folder."""
    paths = folder / "cert.pem", folder / "key.pem"
    for path, data in zip(paths, certificate_of(host), strict=True):
        path.write_bytes(data)
    return paths

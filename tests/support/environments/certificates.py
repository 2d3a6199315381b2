"""A certificate for this machine, made on the spot."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(
    folder: Path, address: str = "127.0.0.1", *, end: datetime.datetime | None = None
) -> tuple[Path, Path]:
    """The files of a certificate for an address, loopback by default, and of its key.

    It is valid until tomorrow, or until `end`.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "windlass test")])
    now = datetime.datetime.now(datetime.UTC)
    named = x509.IPAddress(ipaddress.ip_address(address))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(end or now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([named]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, secret

"""Authorities of clients, and certificates that they sign."""

import base64
import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Secret = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
CLIENTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)
SERVERS = (ExtendedKeyUsageOID.SERVER_AUTH,)


@dataclass(frozen=True)
class Made:
    """A certificate and its key."""

    certificate: x509.Certificate
    secret: Secret

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def secret_pem(self) -> str:
        return self.secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def files(self, folder: Path, name: str) -> tuple[str, str]:
        """Files of the certificate and of its key."""
        certificate, secret = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_text(self.pem)
        secret.write_text(self.secret_pem)
        return str(certificate), str(secret)

    def headers(self, *chain: "Made") -> dict[str, str]:
        """What a proxy that speaks RFC 9440 writes of it, and of those beside it."""
        found = {"Client-Cert": _sequence(self.der)}
        if chain:
            found["Client-Cert-Chain"] = ", ".join(_sequence(one.der) for one in chain)
        return found


def made(
    name: str,
    issuer: Made | None = None,
    *,
    ca: bool = False,
    days: tuple[float, float] = (-1, 1),
    usage: Iterable[x509.ObjectIdentifier] = (),
    secret: Secret | None = None,
) -> Made:
    """A certificate that is valid for some days from now, of an issuer or signed by itself."""
    secret = secret or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    if wanted := list(usage):
        builder = builder.add_extension(x509.ExtendedKeyUsage(wanted), False)
    return Made(builder.sign(issuer.secret if issuer else secret, hashes.SHA256()), secret)


def _sequence(der: bytes) -> str:
    return f":{base64.b64encode(der).decode()}:"

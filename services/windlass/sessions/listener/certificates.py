"""The Kubernetes listener's certificate: the operator's, or one of an authority of our own."""

import datetime as dt
import ipaddress
import os
import ssl
from collections.abc import Collection
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windlass.core.keyring import Keyring

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEW_DAYS = 60
_BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
_CLOCKS = dt.timedelta(minutes=5)


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS for HTTP/1.1 alone, since an upgrade of HTTP/2 is another protocol."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    return context


async def share_authority(keyring: Keyring, folder: Path) -> None:
    """Put the installation's authority into a folder; the first replica makes it.

    Kubeconfigs name one authority, so the listeners of all replicas must have it.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def make() -> bytes:
        if not (folder / "ca.pem").exists():
            _make_authority(folder)
        return (folder / "ca.key").read_bytes() + (folder / "ca.pem").read_bytes()

    shared = await keyring.shared("kubernetes-authority", make)
    key, begin, certificate = shared.partition(_BEGIN_CERTIFICATE)
    certificate = begin + certificate
    pem = folder / "ca.pem"
    if not pem.exists() or pem.read_bytes() != certificate:
        _write(folder / "ca.key", key)
        _write(pem, certificate)
        # Signed by another authority.
        (folder / "server.pem").unlink(missing_ok=True)


def own_certificate(folder: Path, names: Collection[str]) -> tuple[Path, Path, Path]:
    """Certificate, key and authority for some host names or addresses, PEM files.

    The authority is made once. The certificate is made anew when it is close to its end, or
    does not have all of the names.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority, certificate = folder / "ca.pem", folder / "server.pem"
    if not authority.exists():
        _make_authority(folder)
    if not _is_good(certificate, names):
        _make_certificate(folder, sorted(names))
    return certificate, folder / "server.key", authority


def _make_authority(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Windlass")])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key.public_key(), days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write(folder / "ca.key", _private(key))
    _write(folder / "ca.pem", _public(builder.sign(key, hashes.SHA256())))


def _make_certificate(folder: Path, names: list[str]) -> None:
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"{folder / 'ca.key'} is not the key of the certificate authority made here"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(subject, authority.subject, key.public_key(), days=CERTIFICATE_DAYS)
        .add_extension(x509.SubjectAlternativeName(list(map(_name, names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
    )
    _write(folder / "server.key", _private(key))
    _write(folder / "server.pem", _public(builder.sign(signer, hashes.SHA256())))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCKS,
        not_valid_after=now + dt.timedelta(days=days),
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _is_good(path: Path, names: Collection[str]) -> bool:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    held = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    left = found.not_valid_after_utc - dt.datetime.now(dt.UTC)
    return left > dt.timedelta(days=RENEW_DAYS) and {_name(one) for one in names} <= set(held)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)

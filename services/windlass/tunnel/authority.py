"""Certificate authorities of our own: an agent's for its pods, an installation's for gateways."""

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Who is given an authority keeps it for as long as the longest job or agent lives.
_AUTHORITY_DAYS = 20 * 365
# Made anew at each start, and again when it is close to its end.
CERTIFICATE_DAYS = 90
_RENEW_DAYS = 30
_CLOCKS = dt.timedelta(hours=1)
_GATEWAYS = "engines' clients"
_BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


class SharedSecrets(Protocol):
    """Secrets of an installation, as its keyring has them."""

    async def shared(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Returns a secret that all processes share; the first to ask makes it."""


@dataclass(frozen=True)
class Authority:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def make(cls) -> Self:
        """Makes a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Windlass agent")
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True,
            content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signed = (
            _builder(name, name, key.public_key(), days=_AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(subject, critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(signed.public_bytes(serialization.Encoding.PEM), _private(key))

    def issue(self, host: str) -> tuple[bytes, bytes]:
        """A server's certificate for a host name or an address, and its key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._signed(key.public_key(), "Windlass runners", host)
        return signed, _private(key)

    def client(self) -> tuple[bytes, bytes]:
        """A certificate by which a client of the authority shows itself, and its key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        # Another name than the authority's, or it would count as signed by itself.
        return self._signed(key.public_key(), "Windlass engines' client", ""), _private(key)

    def certify(self, request: bytes, host: str) -> bytes:
        """A server's certificate for the key of a request (PKCS #10, DER); raises ValueError.

        Whatever name the request asks for, it is `host`'s.
        """
        asked = x509.load_der_x509_csr(request)
        key = asked.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not asked.is_signature_valid:
            raise ValueError("the request is not signed by its own key")
        return self._signed(key, "Windlass engine", host)

    def _signed(self, key: ec.EllipticCurvePublicKey, common: str, host: str) -> bytes:
        """A certificate (PEM) of a server called `host`, or of a client without one."""
        signer = serialization.load_pem_private_key(self.key, password=None)
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority has a key that is not its own")
        authority = x509.load_pem_x509_certificate(self.certificate)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if host else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
        made = (
            _builder(_name(common), authority.subject, key, days=CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if host:
            names = x509.SubjectAlternativeName([_alternative(host)])
            made = made.add_extension(names, critical=False)
        return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def is_stale(certificate: bytes) -> bool:
    """Returns True if a certificate should be renewed."""
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return end - dt.datetime.now(dt.UTC) < dt.timedelta(days=_RENEW_DAYS)


class ClientIdentity:
    """TLS by which a client of an authority shows itself; its certificate is never stale."""

    def __init__(self, authority: Authority, tls: ssl.SSLContext):
        self._authority = authority
        self._certificate = b""
        self._tls = tls
        tls.minimum_version = ssl.TLSVersion.TLSv1_3

    @property
    def tls(self) -> ssl.SSLContext:
        """The context, with a new certificate from the next connection on where one is due."""
        if not self._certificate or is_stale(self._certificate):
            self._certificate, key = self._authority.client()
            show(self._tls, self._certificate, key)
        return self._tls


def show(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Has a context show a certificate, of PEM as its key; neither stays in a file."""
    with tempfile.TemporaryDirectory(prefix="windlass-tls-") as folder:
        files = Path(folder) / "shown.crt", Path(folder) / "shown.key"
        for path, content in zip(files, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        tls.load_cert_chain(*files)


async def gateways_authority(secrets: SharedSecrets) -> Authority:
    """Returns the installation's authority of those who may ask engines directly."""

    def make() -> bytes:
        made = Authority.make()
        return made.key + made.certificate

    key, begin, certificate = (await secrets.shared(_GATEWAYS, make)).partition(_BEGIN_CERTIFICATE)
    return Authority(begin + certificate, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

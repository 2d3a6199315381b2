"""The agent's certificate authority, trusted by its runners and kept in a Secret."""

import datetime as dt
import ipaddress
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from windlass.kubernetes.labels import MANAGED_BY
from windlass_agent.kube import Conflict, Kube, ResourceNotFound
from windlass_agent.kube.resources import SECRETS

SECRET = "windlass-agent-runners"  # noqa: S105 - the name of a Secret
# Pods are given the authority when they start, so it must outlive the longest job by far.
_AUTHORITY_DAYS = 20 * 365
# Made anew at each start, and again when it is close to its end.
CERTIFICATE_DAYS = 90
_RENEW_DAYS = 30
_CLOCKS = dt.timedelta(hours=1)


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
        """A certificate by which the agent shows itself to pods, and its key, PEM."""
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
            raise ValueError("the agent's Secret holds a key that is not its own")
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


async def kept_authority(kube: Kube, namespace: str) -> Authority:
    """Returns the authority in the agent's Secret, made at the first start; raises KubeError."""
    path = SECRETS.path(namespace, SECRET)
    made = Authority.make()
    data = {
        "ca.crt": b64encode(made.certificate).decode(),
        "ca.key": b64encode(made.key).decode(),
    }
    try:
        secret = await kube.get(path)
        if secret.get("data"):
            return _from_secret(secret)
        # The chart makes it empty, so that the agent need not be let create Secrets.
        version = secret["metadata"]["resourceVersion"]
        await kube.patch(path, {"metadata": {"resourceVersion": version}, "data": data})
    except ResourceNotFound:
        metadata = {"name": SECRET, "labels": dict(MANAGED_BY)}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        try:
            await kube.create(SECRETS.path(namespace), body)
        except Conflict:
            return _from_secret(await kube.get(path))
    except Conflict:
        return _from_secret(await kube.get(path))
    return made


def _from_secret(secret: dict[str, Any]) -> Authority:
    data = secret.get("data") or {}
    return Authority(b64decode(data.get("ca.crt", "")), b64decode(data.get("ca.key", "")))


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

"""Certificates as tenants upload them: one in PEM, with a key and a life that are good for TLS."""

import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from windlass.core import clock
from windlass.core.certificates.presented import DER_LENGTH
from windlass.core.errors import InvalidArgument

PEM_LENGTH = 16 * 1024
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
# What chains are verified with; others would be uploaded and never admit anybody.
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_HASHES = (hashes.SHA256, hashes.SHA384, hashes.SHA512)
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----")


@dataclass(frozen=True, slots=True)
class UploadedCertificate:
    """A certificate that may admit clients: itself, or those that it signs."""

    der: bytes
    # SHA-256 of it, in hexadecimal.
    fingerprint: str
    # Unix seconds.
    valid_at: int
    expires_at: int


def read_pem(text: str, param: str) -> UploadedCertificate:
    """The one certificate of a PEM text; raises InvalidArgument."""
    if len(text) > PEM_LENGTH:
        raise _bad(f"is longer than {PEM_LENGTH} characters", param)
    blocks = _BLOCK.findall(text)
    if any(name.endswith("PRIVATE KEY") for name in blocks):
        raise _bad("has a private key, which nobody else should get", param)
    if blocks != ["CERTIFICATE"]:
        raise _bad("must be exactly one certificate in PEM", param)
    try:
        found = x509.load_pem_x509_certificate(text.encode())
        _require_fit(found, param)
    except InvalidArgument:
        raise
    # Whatever a foreign certificate has, the parser has several errors for.
    except Exception as error:
        raise _bad("is no X.509 certificate in PEM that can be read", param) from error
    der = found.public_bytes(serialization.Encoding.DER)
    if len(der) > DER_LENGTH:
        raise _bad(f"is longer than {DER_LENGTH} bytes", param)
    return UploadedCertificate(
        der=der,
        fingerprint=found.fingerprint(hashes.SHA256()).hex(),
        valid_at=int(found.not_valid_before_utc.timestamp()),
        expires_at=int(found.not_valid_after_utc.timestamp()),
    )


def pem_of(der: bytes) -> str:
    """A certificate in PEM."""
    found = x509.load_der_x509_certificate(der)
    return found.public_bytes(serialization.Encoding.PEM).decode()


def _require_fit(found: x509.Certificate, param: str) -> None:
    if found.version is not x509.Version.v3:
        raise _bad("must be of X.509 version 3", param)
    if found.not_valid_after_utc.timestamp() <= clock.now():
        raise _bad("has expired", param)
    key = found.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            raise _bad(f"has an RSA key of {key.key_size} bits: at least {MIN_RSA_BITS}", param)
    elif not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)):
        raise _bad("must have an RSA key, or one of ECDSA on P-256, P-384 or P-521", param)
    if not isinstance(found.signature_hash_algorithm, _HASHES):
        raise _bad("must be signed with SHA-256, SHA-384 or SHA-512", param)
    usage = _key_usage(found)
    if _is_authority(found) and usage is not None and not usage.key_cert_sign:
        raise _bad("is one of an authority whose key may sign no certificates", param)


def _is_authority(found: x509.Certificate) -> bool:
    try:
        return found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _key_usage(found: x509.Certificate) -> x509.KeyUsage | None:
    try:
        return found.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return None


def _bad(what: str, param: str) -> InvalidArgument:
    return InvalidArgument(f"{param} {what}.", reason="invalid_certificate", param=param)

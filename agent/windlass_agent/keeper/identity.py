"""The key of a keeper's door, which never leaves its pod, and what it trusts."""

import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class DoorIdentity:
    """A private key in a folder of the pod's own, and the certificate that the agent issues."""

    def __init__(self, folder: Path, authority: Path):
        """`authority` is the PEM file of the agent's CA, which signs both sides."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._certificate = folder / "door.crt"
        self._file = folder / "door.key"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._file.touch(mode=0o600)
        self._file.write_bytes(
            self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_3
        # Whoever comes shows a client's certificate of the agent's CA, which the agent alone has.
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.load_verify_locations(authority)

    def request(self) -> bytes:
        """A certificate request (PKCS #10, DER); the agent decides which name it is for."""
        unnamed = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        signed = unnamed.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.DER)

    def take(self, certificate: bytes) -> None:
        """Shows a certificate (PEM) from the next connection on; raises ssl.SSLError."""
        self._certificate.write_bytes(certificate)
        self.tls.load_cert_chain(self._certificate, self._file)

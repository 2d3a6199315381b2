"""A cluster's certificates and kubeconfigs."""

import datetime
import ipaddress
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.cluster.provision.site import Site

VALID = datetime.timedelta(days=30)
SERVICES = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
# Who calls the API server: common name and groups.
USERS = {
    "admin": ("admin", ["system:masters"]),
    "controller-manager": ("system:kube-controller-manager", []),
    "scheduler": ("system:kube-scheduler", []),
    "proxy": ("system:kube-proxy", []),
}


class Authority:
    """A certificate authority in a folder, which also gets the certificates that it issues."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test-ca", [])
        built = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        (folder / "ca.crt").write_bytes(_pem(built.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, common: str, groups: list[str], hosts: list[str]) -> None:
        """Writes NAME.crt and NAME.key for a client that may also serve as `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = self._builder(_name(common, groups), key.public_key()).add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        if hosts:
            built = built.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        (self._folder / f"{name}.crt").write_bytes(_pem(built.sign(self._key, hashes.SHA256())))
        write_key(self._folder / f"{name}.key", key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        # A clock may be behind.
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=start,
            not_valid_after=start + VALID,
        )


def write_identities(site: Site) -> None:
    """Writes every certificate, the service accounts' key pair and the kubeconfigs."""
    folder = site.folder / "pki"
    authority = Authority(folder)
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = ["127.0.0.1", SERVICE_ADDRESS, site.address]
    authority.issue("apiserver", "kube-apiserver", [], names + addresses)
    authority.issue("front-proxy", "front-proxy", [], [])
    users = USERS | {"kubelet": (f"system:node:{site.node}", ["system:nodes"])}
    for user, (common, groups) in users.items():
        hosts = [site.node, site.address] if user == "kubelet" else []
        authority.issue(user, common, groups, hosts)
        write_kubeconfig(site, user)
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(folder / "service-accounts.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "service-accounts.pub").write_bytes(public)


def write_kubeconfig(site: Site, user: str) -> None:
    """Writes a kubeconfig that refers to the user's certificate."""
    pki = site.folder / "pki"
    certificate = {
        "client-certificate": f"{pki}/{user}.crt",
        "client-key": f"{pki}/{user}.key",
    }
    cluster = {"server": site.api, "certificate-authority": f"{pki}/ca.crt"}
    # Unlike those of other clusters, so that kubeconfigs may be merged.
    name = f"{user}@{site.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": site.name, "cluster": cluster}],
        "users": [{"name": name, "user": certificate}],
        "contexts": [{"name": site.name, "context": {"cluster": site.name, "user": name}}],
        "current-context": site.name,
    }
    site.kubeconfig(user).write_text(yaml.safe_dump(config))


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Writes a private key that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(common: str, groups: list[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

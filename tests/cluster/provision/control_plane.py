"""The commands of a control plane: etcd, the API server, its controllers, the DNS server."""

from pathlib import Path

from tests.cluster.provision.identities import SERVICES
from tests.cluster.provision.programs import program
from tests.cluster.provision.site import Site

Command = list[str]
ETCD = "http://127.0.0.1:2379"
PEER = "http://127.0.0.1:2380"


def commands(site: Site) -> dict[str, Command]:
    """Every program of the control plane by its name."""
    return {
        "etcd": etcd(),
        "apiserver": apiserver(site),
        "controller-manager": controller_manager(site),
        "scheduler": scheduler(site),
        "coredns": [str(program("coredns")), "-conf", f"{site.folder}/Corefile"],
        "kwok": kwok(site),
    }


def configure(site: Site) -> None:
    """Writes what the programs read besides their flags."""
    # Without in-addr.arpa each connection of torch waits 30 s for a reverse look-up.
    (site.folder / "Corefile").write_text(
        f".:53 {{\n  bind {site.address}\n  kubernetes cluster.local in-addr.arpa {{\n"
        f"    kubeconfig {site.kubeconfig()} {site.name}\n    ttl 1\n  }}\n}}\n"
    )


def etcd() -> Command:
    """One member; what a test writes need not survive the machine."""
    return [
        str(program("etcd")),
        *("--data-dir", "/var/lib/etcd", "--unsafe-no-fsync", "--log-level", "warn"),
        *("--listen-client-urls", ETCD, "--advertise-client-urls", ETCD),
        *("--listen-peer-urls", PEER, "--initial-advertise-peer-urls", PEER),
        *("--initial-cluster", f"default={PEER}"),
    ]


def apiserver(site: Site) -> Command:
    """The API server, with one authority for all; hence the allowed names of the front proxy."""
    pki = site.folder / "pki"
    flags = {
        "etcd-servers": ETCD,
        "advertise-address": site.address,
        "secure-port": "6443",
        "tls-cert-file": f"{pki}/apiserver.crt",
        "tls-private-key-file": f"{pki}/apiserver.key",
        "client-ca-file": f"{pki}/ca.crt",
        "service-account-key-file": f"{pki}/service-accounts.pub",
        "service-account-signing-key-file": f"{pki}/service-accounts.key",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-cluster-ip-range": SERVICES,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-client-certificate": f"{pki}/admin.crt",
        "kubelet-client-key": f"{pki}/admin.key",
        "kubelet-certificate-authority": f"{pki}/ca.crt",
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": f"{pki}/ca.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{pki}/front-proxy.crt",
        "proxy-client-key-file": f"{pki}/front-proxy.key",
        # Webhooks and API services are reached at their pods' addresses.
        "enable-aggregator-routing": "true",
        "allow-privileged": "true",
    }
    return [str(program("kubernetes", "kube-apiserver")), *as_flags(flags)]


def controller_manager(site: Site) -> Command:
    """The controllers; a node is lost after 20 s instead of 50, to save the tests that time."""
    flags = {
        "kubeconfig": str(site.kubeconfig("controller-manager")),
        "leader-elect": "false",
        "service-account-private-key-file": f"{site.folder}/pki/service-accounts.key",
        "root-ca-file": f"{site.folder}/pki/ca.crt",
        "use-service-account-credentials": "true",
        "node-monitor-grace-period": "20s",
        "node-monitor-period": "2s",
        "kube-api-qps": "200",
        "kube-api-burst": "400",
    }
    return [str(program("kubernetes", "kube-controller-manager")), *as_flags(flags)]


def scheduler(site: Site) -> Command:
    """The scheduler."""
    flags = {
        "kubeconfig": str(site.kubeconfig("scheduler")),
        "leader-elect": "false",
        "kube-api-qps": "200",
        "kube-api-burst": "400",
    }
    return [str(program("kubernetes", "kube-scheduler")), *as_flags(flags)]


def kwok(site: Site, config: Path | None = None, *, player: str = "fake") -> Command:
    """The kubelet of nodes that do not exist: of those that name it as their player."""
    flags = {
        "kubeconfig": str(site.kubeconfig()),
        "config": str(config or site.folder / "kwok-stages.yaml"),
        "manage-all-nodes": "false",
        "manage-nodes-with-annotation-selector": f"kwok.x-k8s.io/node={player}",
        "node-ip": site.address,
        "node-lease-duration-seconds": "40",
    }
    return [str(program("kwok")), *as_flags(flags)]


def as_flags(values: dict[str, str]) -> list[str]:
    """`--name=value` for each."""
    return [f"--{name}={value}" for name, value in values.items()]

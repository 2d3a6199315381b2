"""The commands of a node: containerd, the kubelet, kube-proxy, kube-router."""

import json
from pathlib import Path

import yaml
from tests.cluster.provision.control_plane import Command, as_flags
from tests.cluster.provision.identities import SERVICES
from tests.cluster.provision.programs import BY_NAME, program
from tests.cluster.provision.site import Site

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE = "registry.k8s.io/pause:3.10"
PODS = 200


def commands(site: Site) -> dict[str, Command]:
    """Every program of the node by its name."""
    return {
        "containerd": [
            str(program("containerd")),
            *("-c", f"{site.folder}/containerd.toml", "-l", "warn"),
        ],
        "kubelet": [
            str(program("kubernetes", "kubelet")),
            *as_flags(
                {
                    "config": f"{site.folder}/kubelet.yaml",
                    "kubeconfig": str(site.kubeconfig("kubelet")),
                    "hostname-override": site.node,
                    "node-ip": site.address,
                }
            ),
        ],
        "proxy": proxy(site),
        "policies": policies(site),
    }


def proxy(site: Site) -> Command:
    """kube-proxy, which leaves the machine's limits on connections alone."""
    flags = {
        "proxy-mode": "nftables",
        "kubeconfig": str(site.kubeconfig("proxy")),
        "hostname-override": site.node,
        "cluster-cidr": site.pods,
        "conntrack-max-per-core": "0",
        "conntrack-tcp-timeout-established": "0s",
        "conntrack-tcp-timeout-close-wait": "0s",
    }
    return [str(program("kubernetes", "kube-proxy")), *as_flags(flags)]


def policies(site: Site) -> Command:
    """kube-router, of which only the part that enforces NetworkPolicies runs."""
    flags = {
        "kubeconfig": str(site.kubeconfig()),
        "hostname-override": site.node,
        "service-cluster-ip-range": SERVICES,
        "run-firewall": "true",
        "run-router": "false",
        "run-service-proxy": "false",
        "enable-cni": "false",
    }
    return [str(program("kube-router")), *as_flags(flags)]


def configure(site: Site) -> None:
    """Writes the configurations of containerd, of its network and of the kubelet."""
    folder = site.folder
    (folder / "containerd.toml").write_text(containerd_config(folder / "cni"))
    (folder / "cni").mkdir(exist_ok=True)
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network_config(site)))
    (folder / "resolv.conf").write_text(f"nameserver {site.address}\n")
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(kubelet_config(site)))


def containerd_config(networks: Path) -> str:
    """containerd's own defaults, but for where the network plugins are."""
    # A container may lack the capability to lower oom_score_adj; then it keeps its parent's.
    return f"""version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{BY_NAME["cni"].folder()}"]
  conf_dir = "{networks}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def network_config(site: Site) -> dict[str, object]:
    """A bridge for the pods, with addresses from the cluster's own subnet."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        # Pods reach this machine under the node's address; nothing outside reaches pods.
        "ipMasq": True,
        "ipMasqBackend": "nftables",
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": site.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def kubelet_config(site: Site) -> dict[str, object]:
    """Short periods, so that secrets, leases and statuses are seen in seconds."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{site.cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "4s",
        "nodeStatusReportFrequency": "10s",
        "nodeLeaseDurationSeconds": 12,
        "maxPods": PODS,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "serializeImagePulls": False,
        "clusterDNS": [site.address],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{site.folder}/resolv.conf",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "authentication": {
            "x509": {"clientCAFile": f"{site.folder}/pki/ca.crt"},
            "webhook": {"enabled": True},
            "anonymous": {"enabled": False},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{site.folder}/pki/kubelet.crt",
        "tlsPrivateKeyFile": f"{site.folder}/pki/kubelet.key",
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # Many tests' pods share this node, and what they ask for is seldom what they use.
        "registryPullQPS": 0,
    }

"""Location of a running cluster: its folder, its slot on this machine, and derived paths."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.provision import programs

REPOSITORY = Path(__file__).parents[3]
SLOTS = 200


@dataclass(frozen=True)
class Site:
    """One cluster's names and addresses; the slot keeps two clusters of a machine apart."""

    name: str
    slot: int
    # Process 1 of the cluster, as this machine counts.
    pid: int

    @property
    def folder(self) -> Path:
        """Everything that the cluster writes is below it."""
        return folder_of(self.name)

    @property
    def host(self) -> str:
        """This machine, as pods reach it."""
        return f"10.201.{self.slot}.1"

    @property
    def address(self) -> str:
        """The node, as this machine reaches it."""
        return f"10.201.{self.slot}.2"

    @property
    def api(self) -> str:
        """The URL of the API server."""
        return f"https://{self.address}:6443"

    @property
    def pods(self) -> str:
        """The subnet of its pods."""
        return f"10.244.{self.slot}.0/24"

    @property
    def node(self) -> str:
        """The name of the one node that is real."""
        return f"{self.name}-1"

    @property
    def link(self) -> str:
        """The network interface on this machine that leads to the cluster."""
        return f"windlass{self.slot}"

    @property
    def cgroup(self) -> str:
        """The control group of its pods, in every hierarchy."""
        return f"windlass-{self.slot}"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of an administrator or of one of the programs."""
        return self.folder / f"{user}.kubeconfig"

    def write(self) -> None:
        """Says where the cluster is, to whoever may read the folder."""
        (self.folder / "site.json").write_text(json.dumps(asdict(self)))


def folder_of(name: str) -> Path:
    """The folder of the cluster of a name, which may not exist."""
    return running_folder() / name


def running_folder() -> Path:
    """The parent of every running cluster's folder."""
    return programs.cache_folder() / "running"


def logs_folder(name: str) -> Path:
    """The folder of the logs of a cluster's programs after its end."""
    return programs.cache_folder() / "logs" / name


def marker(name: str, kind: str) -> Path:
    """A file beside the clusters: locks `start`, `alive` and `users`, and `keep`, there or not."""
    return programs.cache_folder() / "locks" / f"{name}.{kind}"


def read(name: str) -> Site:
    """The running cluster of a name."""
    return Site(**json.loads((folder_of(name) / "site.json").read_text()))

"""Terms of a lease: what the operator lets a project share, and what a process takes. Pure."""

from dataclasses import dataclass
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.config.tuning import ClusterLeaseSection, SeatsSection
from windlass.tuning.full_parameters import PARAMETER_BYTES, SAMPLED_PARAMETER_BYTES
from windlass.tuning.seats.devices import GPU_RESIDUE_BYTES, WORK_BYTES
from windlass.tuning_api.seating.admission import Demand, Lease, never_fits
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.records import PodResources

# Of the keeper beside each process.
KEEPER_BYTES = 256 * 2**20
_EACH = {"trainer": PARAMETER_BYTES, "sampler": SAMPLED_PARAMETER_BYTES}


@dataclass(frozen=True)
class LeaseTerms:
    """A cluster's devices as the operator lets a project share them."""

    cluster: str
    section: ClusterLeaseSection
    # Whether residents free the devices for each other.
    takes_turns: bool

    @classmethod
    def of(
        cls, settings: SeatsSection, cluster: pb.Cluster, *, takes_turns: bool
    ) -> "LeaseTerms | None":
        """The terms for a cluster, by its name or its id; None where each pod has its devices."""
        for name, section in settings.clusters.items():
            if name in (cluster.name, cluster.id):
                return cls(cluster.name, section, takes_turns)
        return None

    def demand(self, wish: PodWish) -> Demand:
        """Memory that a process takes, its keeper's included."""
        each = _EACH[wish.role] if wish.is_full else SAMPLED_PARAMETER_BYTES
        device = wish.model.parameters * each + WORK_BYTES
        parked = device if self.takes_turns else 0
        own = wish.resources.memory_bytes or self.section.program_bytes + parked
        return Demand(device, own + KEEPER_BYTES, GPU_RESIDUE_BYTES)

    def resources(self, demand: Demand) -> PodResources:
        """Resources of the pod of a process: all devices, which it shares, and its memory."""
        given = self.section
        return PodResources(given.gpus, given.accelerator, demand.host_bytes - KEEPER_BYTES)

    def refusal(self, wish: PodWish) -> str:
        """The sentence that says why a process can never sit there; or nothing."""
        asked, given = wish.resources, self.section
        if asked.gpus not in (0, given.gpus) or asked.accelerator not in ("", given.accelerator):
            return (
                f"Trainers share devices in {self.cluster}: windlass.resources may ask for their "
                "memory, and for no other gpus or accelerator than the operator shares."
            )
        if wish.processes > 1 and self.takes_turns:
            return f"Runs of several processes do not park, and {self.cluster} goes by turns."
        return never_fits([self._lease], self.demand(wish))

    def row(self, project_id: str, queue: str) -> dict[str, Any]:
        """The row of the devices in the ledger."""
        lease = self._lease
        return {
            "device": lease.name,
            "device_bytes": lease.device_bytes,
            "host_bytes": lease.host_bytes,
            "max_residents": lease.max_residents,
            "devices": lease.devices,
            "project_id": project_id,
            "queue": queue,
        }

    @property
    def _lease(self) -> Lease:
        given = self.section
        return Lease(
            "", self.cluster, given.device_bytes, given.host_bytes, given.max_residents, given.gpus
        )  # fmt: skip

"""Number of processes of a training, passed to torchrun in its own variables."""

from windlass.api.jobs.v1.jobs_pb2 import Resources


def processes_of(resources: Resources) -> int:
    """Processes of each node: as asked for, else one for each GPU, at least one."""
    return max(1, resources.processes or resources.gpus)


def alone(resources: Resources) -> dict[str, str]:
    """Variables of a job on one node, which override those of the agent's environment."""
    processes = str(processes_of(resources))
    return {"PET_NNODES": "1", "PET_NPROC_PER_NODE": processes, "PET_NODE_RANK": "0"}

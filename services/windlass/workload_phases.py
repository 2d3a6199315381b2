"""Phases of a workload, as agents report them and services read them."""

from windlass.api.clusters.v1 import clusters_pb2 as pb

# Nothing of the workload runs any more, nor will.
TERMINAL_PHASES = frozenset({pb.PHASE_SUCCEEDED, pb.PHASE_FAILED, pb.PHASE_STOPPED})

"""Clusters that may start one engine more of a version, as the choice among them sees each."""

from collections import Counter

from windlass.inference.domain import weights_of
from windlass.inference.places import CandidateCluster, EngineNeed
from windlass.inference.planning.round import Round


def candidates_of(state: Round, version: str) -> list[CandidateCluster]:
    """The clusters that may start an engine of a version, full ones among them."""
    name, settings = state.names[version], state.settings
    same = Counter(one.cluster_id for one in state.engines_of(version))
    weights = weights_of(state.names, version).weight_bytes
    wish = settings.wish(version)
    found = []
    for cluster in state.candidates(version):
        gpus = settings.gpus(version, cluster)
        need = EngineNeed(name.project_id, gpus, wish.nodes, weights, wish.memory_bytes)
        assigned = state.view.assignment(cluster.id, name.project_id)
        candidate = CandidateCluster(
            cluster_id=cluster.id,
            is_full=state.is_full(cluster),
            weight=settings.weight(version, cluster.id),
            same=same[cluster.id],
            is_shared=cluster.shared,
            price_micros=assigned.price_micros if assigned else 0,
            room=state.quota.of(cluster.id, need),
            has_files=state.has_files(cluster.id, version),
            engines=state.load[cluster.id],
        )
        found.append(candidate)
    return found

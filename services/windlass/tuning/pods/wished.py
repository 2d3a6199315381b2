"""Rows of pods, by what is wished and where."""

import hashlib
from dataclasses import asdict
from typing import Any

from windlass.core.ids import new_id
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning.pods.tables import LEASE, LEASE_PREFIX
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.records import PodResources


def process_row(
    wish: PodWish, place: TrainingPlace, token: str, resources: PodResources, lease_id: str = ""
) -> dict[str, Any]:
    """The row of a trainer or a sampler."""
    return _at(place) | {
        "id": new_id("trainer_"),
        "role": wish.role,
        "base_model": wish.model.name,
        "owner": wish.owner,
        "lease_id": lease_id,
        "settings": {
            "engine": wish.engine,
            "processes": wish.processes,
            "max_rank": wish.max_rank,
            "full": wish.is_full,
            **asdict(resources),
        },
        "token_sha256": hashlib.sha256(token.encode()).hexdigest(),
    }


def lease_row(place: TrainingPlace, resources: PodResources) -> dict[str, Any]:
    """The row of a pod that holds devices."""
    return _at(place) | {
        "id": new_id(LEASE_PREFIX),
        "role": LEASE,
        "base_model": "",
        "owner": "",
        "lease_id": "",
        "settings": asdict(resources),
        "token_sha256": "",
    }


def _at(place: TrainingPlace) -> dict[str, Any]:
    assigned = place.assignment
    return {
        "organization_id": assigned.organization_id,
        "project_id": assigned.project_id,
        "cluster_id": place.cluster.id,
        "placement": {
            "namespace": assigned.namespace,
            "queue": assigned.local_queue,
            "priority_class": assigned.priority_class,
            "node_selector": dict(assigned.node_selector),
        },
    }

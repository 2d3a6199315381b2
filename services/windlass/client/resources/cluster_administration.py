"""Clusters: registering them, what they have, who may use them, and their quota."""

from typing import Any

from windlass.client.transport.session import Session
from windlass.client.transport.urls import at

PATH = "/v1/clusters"
Item = dict[str, Any]


class ClusterAdministration:
    """Operations on clusters for platform administrators."""

    def __init__(self, client: Session):
        self._client = client

    def register(self, name: str, **policy: Any) -> Item:
        """A new cluster; its `registration_key` is told this once, for one agent.

        `policy`, which the agent cannot change: `executor` (`process` or `kubernetes`),
        `roles` (`jobs`, `engines`), `shared`, `addresses`, `max_slots`, `max_engine_slots`,
        `geography` (such as `EU`; an empty one takes the label away).
        """
        answer: Item = self._client.post(PATH, {"name": name, **policy})
        return answer

    def update(self, cluster_id: str, **policy: Any) -> Item:
        """The cluster with its policy changed; what is not said stays as it is."""
        answer: Item = self._client.request("PATCH", at(PATH, cluster_id), json=policy)
        return answer

    def rekey(self, cluster_id: str) -> Item:
        """The cluster with a new `registration_key`; the agent that runs goes when it is used."""
        answer: Item = self._client.post(at(PATH, cluster_id, "registration_keys"))
        return answer

    def all(self) -> list[Item]:
        """All clusters, with capacity and liveness."""
        return list(self._client.pages(PATH))

    def get(self, cluster_id: str) -> Item:
        """Returns one cluster."""
        answer: Item = self._client.get(at(PATH, cluster_id))
        return answer

    def inventory(self, cluster_id: str) -> Item:
        """Returns its nodes, accelerators and queues."""
        answer: Item = self._client.get(at(PATH, cluster_id, "inventory"))
        return answer

    def unregister(self, cluster_id: str) -> None:
        """Revokes the agent's credential and forgets the cluster."""
        self._client.delete(at(PATH, cluster_id))

    def assign(self, project_id: str, cluster_id: str, **how: Any) -> Item:
        """Lets a project use a cluster.

        `how`: `namespace`, `cluster_queue`, `local_queue`, `priority_class`, `price_micros`
        an accelerator-hour, `node_selector`.
        """
        answer: Item = self._client.put(at(PATH, cluster_id, "assignments", project_id), how)
        return answer

    def unassign(self, project_id: str, cluster_id: str) -> None:
        """Places no more of the project there; the rest goes when its last job has ended."""
        self._client.delete(at(PATH, cluster_id, "assignments", project_id))

    def assignments(self, cluster_id: str = "", *, project_id: str = "") -> list[Item]:
        """Assignments: the project's own, or all for a platform administrator."""
        path = at(PATH, *([cluster_id] if cluster_id else []), "assignments")
        return list(self._client.pages(path, project_id=project_id))

    def quota(self, cluster_id: str) -> Item:
        """The quota that Windlass manages there (`spec`), and its present use."""
        answer: Item = self._client.get(at(PATH, cluster_id, "quota"))
        return answer

    def change_quota(self, cluster_id: str, **change: Any) -> Item:
        """The quota after a change: `flavors`, `cohorts`, `cluster_queues` to put, `delete`."""
        answer: Item = self._client.request("PATCH", at(PATH, cluster_id, "quota"), json=change)
        return answer

"""Settings of the engines of each version, as servings, presets and serving stacks say; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import TARGET_REQUESTS
from windlass.engine_arguments import UNCHOSEN, EngineArguments, completed
from windlass.inference.domain import Engine, InferencePolicy, Name, Serving, weights_of
from windlass.inference.places.devices import DIVIDE, cannot_hold, fitting_gpus
from windlass.inference.stacks.stack import REACHES, Stack


class VersionSettings:
    """Settings of the engines of every version that has a name."""

    def __init__(
        self,
        names: Mapping[str, Name],
        servings: Sequence[Serving],
        stacks: Mapping[str, Stack],
        policy: InferencePolicy,
    ):
        self._names = names
        self._servings = {one.version_id: one for one in servings}
        self._stacks = stacks
        self._policy = policy

    def kind(self, version: str) -> str:
        """The kind of engine that a version should have."""
        if name := self._names[version].stack:
            return self._stacks[name].kind if name in self._stacks else REACHES
        serving = self._serving(version)
        return (serving and serving.engine) or self._policy.engine

    def target(self, version: str) -> int:
        """The open requests that each engine of a version should have."""
        serving = self._own(version)
        return (serving and serving.target_requests) or TARGET_REQUESTS

    def weight(self, version: str, cluster_id: str) -> int:
        """The share of a version's engines that a cluster should have; 0: none may run there."""
        serving = self._serving(version)
        return serving.weight(cluster_id) if serving else 1

    def idle_seconds(self, version: str) -> float:
        """The seconds without a request before engines end that nobody keeps running."""
        serving = self._own(version)
        return (serving and serving.idle_seconds) or self._policy.idle_seconds

    def sleep_seconds(self, version: str) -> int:
        """The seconds without a request before engines of a version sleep; 0: they do not."""
        serving = self._serving(version)
        return serving.sleep_seconds if serving else 0

    def gpus(self, version: str) -> int:
        """The GPUs that each engine of a version should have alone; 0 for what is usual."""
        serving = self._serving(version)
        return serving.gpus if serving else 0

    def nodes(self, version: str) -> int:
        """The nodes that each engine of a version runs on."""
        serving = self._serving(version)
        return max(1, serving.nodes) if serving else 1

    def draft_id(self, version: str) -> str:
        """The version that guesses for the engines of a version; empty for none."""
        serving = self._serving(version)
        return serving.draft_version_id if serving else ""

    def stack(self, version: str) -> Stack | None:
        """The serving stack that has a version; None of a model of ours, or an unknown stack."""
        return self._stacks.get(self._names[version].stack)

    def lacks(self, draft_id: str) -> bool:
        """Returns True for a draft that was deleted."""
        return bool(draft_id) and draft_id not in self._names

    def configured(self, engine: Engine, cluster: clusters_pb2.Cluster | None) -> Engine:
        """The engine as it should run in its cluster; None for one that is away."""
        version = engine.version_id
        serving, kind = self._serving(version), self.kind(version)
        arguments = serving.arguments if serving else UNCHOSEN
        arguments = completed(arguments, weights_of(self._names, version).derived(kind))
        gpus, nodes = self.gpus(version), self.nodes(version)
        if not gpus and nodes == 1:
            gpus = self._fitting(engine, cluster, arguments)
        # An engine of before there were several has none.
        nodes = nodes if nodes > 1 else 0
        return replace(
            engine,
            engine=kind,
            arguments=arguments,
            gpus=gpus,
            nodes=nodes,
            draft_version_id=self.draft_id(version),
            sleeps=bool(self.sleep_seconds(version)),
        )

    def cannot_hold(self, version: str, cluster: clusters_pb2.Cluster) -> str:
        """Returns why a cluster's devices can never hold a version; empty if they may."""
        if self.kind(version) not in DIVIDE:
            return ""
        draft = self._names.get(self.draft_id(version))
        model = weights_of(self._names, version)
        return cannot_hold(model, cluster, self.gpus(version), draft)

    def _fitting(
        self, engine: Engine, cluster: clusters_pb2.Cluster | None, arguments: EngineArguments
    ) -> int:
        if self.kind(engine.version_id) not in DIVIDE:
            return 0
        if cluster is None or not cluster.capacity.devices:
            # What was chosen stays, also while the cluster is away.
            return engine.gpus
        model = weights_of(self._names, engine.version_id)
        draft = self._names.get(self.draft_id(engine.version_id))
        return fitting_gpus(model, cluster, arguments, self._policy.max_adapters, draft)

    def _own(self, version: str) -> Serving | None:
        """The serving that says how many engines of a version run, and for how long."""
        if self._names[version].is_dedicated:
            return self._servings.get(version)
        return self._serving(version)

    def _serving(self, version: str) -> Serving | None:
        """The serving that says how the engines of a version run."""
        return self._servings.get(self._names[version].settings_version_id)

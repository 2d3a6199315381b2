"""Settings of the engines of each version, as servings, presets and serving stacks say; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import NORMAL_PRIORITY, PRIORITIES, TARGET_REQUESTS
from windlass.engine_arguments import UNCHOSEN, completed
from windlass.inference.domain import Engine, InferencePolicy, Name, Serving, weights_of
from windlass.inference.places.devices import DIVIDE, KUBERNETES, DeviceCheck, EngineWish
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
        self._wishes: dict[str, EngineWish] = {}
        self.devices = DeviceCheck(policy.max_adapters)

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

    def training(self, version: str) -> str:
        """Returns how the engine of a version may be trained in its own memory; empty: not."""
        serving = self._serving(version)
        return serving.training if serving else ""

    def wish(self, version: str) -> EngineWish:
        """The needs of each engine of a version, wherever it runs."""
        if version not in self._wishes:
            kind, serving = self.kind(version), self._serving(version)
            weights = weights_of(self._names, version)
            arguments = serving.arguments if serving else UNCHOSEN
            self._wishes[version] = EngineWish(
                name=weights,
                kind=kind,
                arguments=completed(arguments, weights.derived(kind)),
                gpus=serving.gpus if serving else 0,
                nodes=max(1, serving.nodes) if serving else 1,
                draft=self._names.get(self.draft_id(version)),
                accelerator=serving.accelerator if serving else "",
                memory_bytes=serving.memory_bytes if serving else 0,
                priority=serving.priority if serving else NORMAL_PRIORITY,
            )
        return self._wishes[version]

    def rank(self, version: str) -> int:
        """The place of a version's priority among priorities, the lowest being 0."""
        known = version in self._names
        return PRIORITIES.index(self.wish(version).priority if known else NORMAL_PRIORITY)

    def draft_id(self, version: str) -> str:
        """The version that guesses for the engines of a version; empty for none."""
        serving = self._serving(version)
        return serving.draft_version_id if serving else ""

    def follow(self, version: str) -> str:
        """`tinker://RUN` of the run whose weights the engines of a version take; or empty."""
        serving = self._serving(version)
        return serving.follow if serving else ""

    def stack(self, version: str) -> Stack | None:
        """The serving stack that has a version; None of a model of ours, or an unknown stack."""
        return self._stacks.get(self._names[version].stack)

    def lacks(self, draft_id: str) -> bool:
        """Returns True for a draft that was deleted."""
        return bool(draft_id) and draft_id not in self._names

    def configured(
        self,
        engine: Engine,
        cluster: clusters_pb2.Cluster | None,
        *,
        is_new: bool = False,
        fits: bool = False,
    ) -> Engine:
        """The engine as it should run in its cluster; None for one that is away.

        One that `fits` answers with the GPUs that it has, whatever an estimate says.
        """
        version = engine.version_id
        wish = self.wish(version)
        gpus, priority = wish.gpus, wish.priority
        if not is_new and (cluster is None or cluster.executor != KUBERNETES):
            # There it means nothing to the engine itself.
            priority = engine.priority
        if not gpus and wish.nodes == 1:
            gpus = self._fitting(engine, cluster, is_new=is_new, fits=fits)
        elif not gpus and wish.accelerator:
            gpus = max(1, cluster.capacity.each_engine.gpus if cluster else engine.gpus)
        return replace(
            engine,
            engine=wish.kind,
            arguments=wish.arguments,
            gpus=gpus,
            # An engine of before there were several has none.
            nodes=wish.nodes if wish.nodes > 1 else 0,
            accelerator=wish.accelerator,
            memory_bytes=wish.memory_bytes,
            priority=priority,
            draft_version_id=self.draft_id(version),
            sleeps=bool(self.sleep_seconds(version)),
            training=self.training(version),
            follow=self.follow(version),
        )

    def refusal(self, version: str, cluster: clusters_pb2.Cluster) -> str:
        """Returns why a cluster can never run a version; empty if it may."""
        return self.devices.refusal(self.wish(version), cluster)

    def gpus(self, version: str, cluster: clusters_pb2.Cluster) -> int:
        """The GPUs of a new engine in a cluster, on each node; 0 for what is usual there."""
        wish = self.wish(version)
        if wish.gpus or wish.nodes > 1 or not _is_fitted(wish):
            return wish.gpus
        return self.devices.gpus(wish, cluster, None)

    def _fitting(
        self, engine: Engine, cluster: clusters_pb2.Cluster | None, *, is_new: bool, fits: bool
    ) -> int:
        """The GPUs of an engine whose serving asks for none; 0 for what is usual."""
        wish, serving = self.wish(engine.version_id), self._serving(engine.version_id)
        if not _is_fitted(wish):
            return 0
        if fits and (serving is None or serving.updated_at <= engine.created_at):
            return engine.gpus
        is_known = cluster is not None and bool(self.devices.rooms(wish, cluster).rooms)
        if cluster is None or not (is_known or (wish.accelerator and not engine.gpus)):
            # What was chosen stays, also while the cluster is away.
            return engine.gpus
        return self.devices.gpus(wish, cluster, None if is_new else engine.gpus)

    def _own(self, version: str) -> Serving | None:
        """The serving that says how many engines of a version run, and for how long."""
        if self._names[version].is_dedicated:
            return self._servings.get(version)
        return self._serving(version)

    def _serving(self, version: str) -> Serving | None:
        """The serving that says how the engines of a version run."""
        return self._servings.get(self._names[version].settings_version_id)


def _is_fitted(wish: EngineWish) -> bool:
    """Returns True where the files decide on the GPUs of an engine that asks for none."""
    return wish.kind in DIVIDE or bool(wish.accelerator)

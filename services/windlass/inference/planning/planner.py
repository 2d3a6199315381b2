"""A round of planning, in its order; and the places that new engines get."""

from collections.abc import Callable
from dataclasses import replace

from windlass.inference.domain import (
    AWAITED_SECONDS,
    RUNNING,
    Engine,
    InferencePolicy,
    Rows,
    View,
    why_none_is_trained,
    why_none_sleeps,
)
from windlass.inference.places import choose
from windlass.inference.planning import elsewhere, replacing, sleeping
from windlass.inference.planning.adapters import AdapterPlacement, AdapterStays
from windlass.inference.planning.candidates import candidates_of
from windlass.inference.planning.changes import EngineChanges
from windlass.inference.planning.revising import is_over, revised
from windlass.inference.planning.round import SUBSTITUTE, Round, Slot
from windlass.inference.planning.scaling import Scalers
from windlass.inference.planning.waits import Waits
from windlass.inference.planning.yielding import lack, trim


class Planner:
    """One round of planning over one set of rows and one view."""

    def __init__(
        self,
        rows: Rows,
        view: View,
        policy: InferencePolicy,
        new_id: Callable[[], str],
        scalers: Scalers | None = None,
        waits: Waits | None = None,
        stays: AdapterStays | None = None,
    ):
        """`scalers`, `waits` and `stays` remember earlier rounds."""
        self._round = Round(rows, view, policy, scalers or Scalers(), waits or Waits(), new_id)
        loads, stays = rows.adapter_loads, stays or AdapterStays()
        self._adapters = AdapterPlacement(self._round, loads, stays)

    def plan(self) -> EngineChanges:
        """The changes of this round."""
        state = self._round
        replacing.exchange(state)
        replacing.promote(state)
        # What is over first, since it leaves room for others.
        for goes in (is_over, replacing.makes_room):
            for engine in tuple(state.running.values()):
                if goes(state, engine):
                    state.end(engine)
        for engine in tuple(state.running.values()):
            state.revise(engine, revised(state, engine, self._adapters))
        trim(state)
        sleeping.give_way(state)
        self._place_missing()
        for version in tuple(state.wants):
            if self._may_be_placed(version) and (beside := replacing.place_beside(state, version)):
                self._start(*beside)
            if self._may_be_placed(version):
                self._ask_elsewhere(version)
        for version, wants in state.wants.items():
            if version not in state.lacking and (version, 0) in state.running:
                state.changes.errors += [(want, "") for want in wants if want.error]
        return state.changes

    def _place_missing(self) -> None:
        state = self._round
        missing = [slot for version in state.wants for slot in self._missing(version)]
        # A project with few engines before one with many; then the newest wish, so that none
        # starts an engine that the next one ends.
        while missing := [slot for slot in missing if self._may_be_placed(slot[0])]:
            first = min(missing, key=self._turn)
            # Whose turn it is starts what has its highest priority.
            own = [slot for slot in missing if self._goes_before(slot, first)]
            slot = min(own, key=self._by_priority, default=first)
            missing.remove(slot)
            self._place(*slot)

    def _missing(self, version: str) -> list[Slot]:
        """The engines that there should be and are not, while somebody may still wait for them."""
        state = self._round
        recent = state.now - state.used_at(version) < AWAITED_SECONDS
        known = any(want.version_id in state.names for want in state.wants[version])
        if not (recent and known):
            return []
        slots = [(version, replica) for replica in range(state.replicas(version))]
        return [slot for slot in slots if slot not in state.running]

    def _may_be_placed(self, version: str) -> bool:
        """Returns False once the version was given up, or one of its engines found no place."""
        return version in self._round.wants and version not in self._round.lacking

    def _turn(self, slot: Slot) -> tuple[bool, int, int, float, str]:
        """The place of an engine in the order of those that are missing."""
        version, replica = slot
        share = self._round.share(self._round.names[version].project_id)
        # The first engine of each model before the second of any.
        return bool(replica), share, replica, -self._round.used_at(version), version

    def _by_priority(self, slot: Slot) -> tuple[int, tuple[bool, int, int, float, str]]:
        return -self._round.settings.rank(slot[0]), self._turn(slot)

    def _goes_before(self, slot: Slot, other: Slot) -> bool:
        """Returns True for an engine of the same project and number of a higher priority."""
        names, rank = self._round.names, self._round.settings.rank
        same = names[slot[0]].project_id == names[other[0]].project_id
        return same and bool(slot[1]) == bool(other[1]) and rank(slot[0]) > rank(other[0])

    def _place(self, version: str, replica: int) -> None:
        state = self._round
        if not state.candidates(version):
            state.complain(version, self._why_nowhere(version))
        elif replica and not sleeping.has_room(state, version):
            state.complain(version, "No cluster has room for another engine.")
        # Nobody has to yield to the second engine of a model, whatever number the first one has.
        elif refusal := lack(state, version, yields=not state.engines_of(version)):
            state.complain(version, refusal)
        else:
            self._start(version, replica)

    def _ask_elsewhere(self, version: str) -> None:
        state = self._round
        if found := elsewhere.ask_elsewhere(state, version):
            if found.present is not None:
                state.end(found.present)
            state.waits.ask(version, found.cluster_id)
            self._start_in(version, SUBSTITUTE, found.cluster_id, found.reason)

    def _start(self, version: str, replica: int) -> None:
        state = self._round
        if replica:
            sleeping.make_room(state, version)
        cluster_id, reason = choose(candidates_of(state, version))
        self._start_in(version, replica, cluster_id, reason)

    def _start_in(self, version: str, replica: int, cluster_id: str, reason: str) -> None:
        state = self._round
        base = state.names[version]
        engine = Engine(
            id=state.new_id(),
            version_id=base.version_id,
            model=base.model,
            project_id=base.project_id,
            organization_id=base.organization_id,
            cluster_id=cluster_id,
            engine=state.settings.kind(version),
            desired=RUNNING,
            generation=1,
            put_generation=0,
            adapters=(),
            created_at=state.now,
            urls_at=state.now,
            replica=replica,
            placement_reason=reason,
        )
        engine = state.configured(engine)
        own = (version,) if base.is_dedicated else self._adapters.of(engine)
        state.add(replace(engine, adapters=own))

    def _why_nowhere(self, version: str) -> str:
        state, settings = self._round, self._round.settings
        if state.names[version].stack:
            return self._why_no_stack(version)
        if settings.lacks(settings.draft_id(version)):
            return "The draft model of its serving was deleted; set another, or none."
        if state.able(version):
            return "A model that requests ask for starts first where it could run."
        engine, clusters = settings.kind(version), state.view.clusters.values()
        if not any(engine in one.capacity.engines for one in clusters):
            return f"No live cluster has the engine {engine!r}."
        if refusal := self._why_unable(version, engine):
            return refusal
        wish = settings.wish(version)
        if not any(state.runs(version, one) for one in clusters):
            return (
                f"No live cluster runs the engine {engine!r} on {wish.nodes} nodes together: that "
                "takes Kubernetes with LeaderWorkerSet."
            )
        if not any(settings.weight(version, one.id) for one in clusters):
            return "None of the clusters in which its serving lets it run is live."
        most = max(one.capacity.gpus for one in clusters)
        if (gpus := wish.gpus * wish.nodes) > most:
            return f"Each engine should have {gpus} GPUs; the largest live cluster has {most}."
        holding = [one for one in clusters if engine in one.capacity.engines]
        devices = settings.devices
        refusals = [(devices.rooms(wish, one).most, devices.refusal(wish, one)) for one in holding]
        if all(why for _, why in refusals):
            return max(refusals)[1]
        return (
            f"No live cluster with the engine {engine!r} is reachable and assigned to the "
            "model's project; see `windlass clusters assign`."
        )

    def _why_unable(self, version: str, engine: str) -> str:
        """Returns why no cluster has engines that do what the serving asks; empty otherwise."""
        settings, clusters = self._round.settings, self._round.view.clusters.values()
        refusal = ""
        if settings.training(version):
            refusal = why_none_is_trained(engine, clusters)
        if settings.sleep_seconds(version):
            refusal = refusal or why_none_sleeps(engine, clusters)
        return refusal

    def _why_no_stack(self, version: str) -> str:
        name, stack = self._round.names[version].stack, self._round.settings.stack(version)
        if stack is None:
            return f"The serving stack {name!r} is not described any more."
        cluster = self._round.view.clusters.get(stack.cluster_id)
        if cluster is None:
            return f"The cluster of the serving stack {name!r} is not connected."
        if not self._round.runs(version, cluster):
            return f"The agent of the serving stack {name!r} is too old to reach it."
        return (
            f"The cluster of the serving stack {name!r} is not reachable, or not assigned to the "
            "model's project; see `windlass clusters assign`."
        )

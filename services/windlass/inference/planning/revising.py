"""Revision of the engines that run: which go on, with which adapters, and which begin again."""

from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.backoff import doubled
from windlass.inference.domain import MAX_RETRY_SECONDS, RETRY_SECONDS, Engine
from windlass.inference.planning import elsewhere, replacing, sleeping
from windlass.inference.planning.adapters import AdapterPlacement
from windlass.inference.planning.round import Round
from windlass.workload_phases import TERMINAL_PHASES

MESSAGE_LENGTH = 500


def is_over(state: Round, engine: Engine) -> bool:
    """Returns True if an engine has to end, whatever becomes of others."""
    version = engine.version_id
    if version not in state.names or state.settings.lacks(engine.draft_version_id):
        return True
    if not state.wants.get(version):
        return not _answers_yet(state, engine)
    is_beyond = engine.replica >= state.replicas(version)
    may_take_a_place = replacing.is_replacement, elsewhere.is_substitute
    if is_beyond and not any(may(state, engine) for may in may_take_a_place):
        return True
    return _is_forbidden(state, engine) or _is_lost(state, engine)


def _answers_yet(state: Round, engine: Engine) -> bool:
    """Returns True for an engine of a merged copy until its base's engines load the adapter."""
    version = engine.version_id
    base = state.names[version].engine_version_id
    if not any(want.version_id == version for want in state.wants.get(base, ())):
        return False
    others = [one for one in state.running.values() if one.version_id == base]
    return state.answers(engine) and not any(state.has_loaded(one, version) for one in others)


def revised(state: Round, engine: Engine, adapters: AdapterPlacement) -> Engine:
    """The engine as it shall be, with other adapters or begun again."""
    if engine.version_id not in state.wants:
        # It only answers until others do.
        return engine
    stack = state.settings.stack(engine.version_id)
    if stack is not None and stack.updated_at > engine.urls_at:
        return state.renewed(replace(engine, failures=0, failed_at=0.0, retry_at=0.0, error=""))
    engine = _judged(state, engine)
    if engine.failed_at:
        return engine
    idle = state.now - adapters.asked_at(engine)
    able = replace(engine, sleeps=engine.sleeps or state.sleeps_untold(engine))
    asleep = idle >= state.settings.sleep_seconds(engine.version_id) and sleeping.is_due(
        state, able
    )
    # One that sleeps loads no other adapters before it wakes.
    wanted = engine.adapters if asleep else adapters.of(engine)
    if asleep != engine.asleep or set(wanted) != set(engine.adapters):
        engine = able if asleep else engine
        return state.renewed(replace(engine, asleep=asleep, adapters=wanted))
    if asleep:
        return engine
    newest = state.view.followed.get((engine.project_id, engine.follow))
    if newest is not None and newest != engine.followed_version:
        return state.renewed(replace(engine, followed_version=newest))
    stale = state.now - engine.urls_at > state.policy.url_seconds
    if stale and not _is_settled(state, engine):
        return state.renewed(engine)
    return engine


def _is_forbidden(state: Round, engine: Engine) -> bool:
    """Returns True if its cluster lives and may not have it any more, or lost its stack."""
    project, stack = (
        state.names[engine.version_id].project_id,
        state.settings.stack(engine.version_id),
    )
    if stack is not None and stack.cluster_id != engine.cluster_id:
        return True
    is_there = engine.cluster_id in state.view.clusters
    return is_there and not state.view.permits(engine.cluster_id, project)


def _is_lost(state: Round, engine: Engine) -> bool:
    """Returns True if its cluster is away or out of reach while another could take over.

    While others of its version answer, nobody makes room for one more: it stays unless there is.
    """
    if state.view.reaches(engine.cluster_id):
        return False
    answered = any(
        state.answers(one) or (one.asleep and state.view.reaches(one.cluster_id))
        for one in state.engines_of(engine.version_id)
    )
    others = state.candidates(engine.version_id)
    return any(not (answered and state.is_full(one)) for one in others)


def _judged(state: Round, engine: Engine) -> Engine:
    """Notes an end that nobody asked for; begins again after a pause, if still wanted."""
    status = state.view.status(engine)
    if engine.failed_at:
        is_wanted = state.used_at(engine.version_id) > engine.failed_at
        if state.now >= engine.retry_at and is_wanted:
            return state.renewed(replace(engine, failed_at=0.0, retry_at=0.0, error=""))
        return engine
    if status.generation != engine.generation:
        return engine
    if status.phase in TERMINAL_PHASES:
        pause = doubled(RETRY_SECONDS, engine.failures, longest=MAX_RETRY_SECONDS)
        return replace(
            engine,
            failures=engine.failures + 1,
            failed_at=state.now,
            retry_at=state.now + pause,
            error=f"{_reason(status)} (engine {engine.id})",
        )
    if status.phase == clusters_pb2.PHASE_RUNNING and engine.failures:
        return replace(engine, failures=0)
    return engine


def _is_settled(state: Round, engine: Engine) -> bool:
    status = state.view.status(engine)
    loaded = {one.version_id for one in status.adapters if not one.error}
    is_newest = status.capabilities.weight_version >= engine.followed_version
    is_up = status.phase == clusters_pb2.PHASE_RUNNING
    return is_up and is_newest and loaded >= set(engine.adapters)


def _reason(status: clusters_pb2.WorkloadStatus) -> str:
    """Returns why an engine ended, on one line whatever its agent says."""
    reason = " ".join((status.message or status.reason).split())[:MESSAGE_LENGTH]
    return reason or "The engine stopped."

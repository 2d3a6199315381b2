"""Runtimes of a project depend on the clusters that it may use."""

from collections.abc import Mapping
from typing import Any, Self

import pytest

from windlass.backends import BackendError, LLMBackend, RenderContext, Sizing, TRLConfig
from windlass.core.errors import InvalidArgument
from windlass.jobs.domain.job import ProjectPlacement
from windlass.jobs.scheduling import runtimes
from windlass.jobs.scheduling.cluster_snapshot import (
    Assigned,
    ClusterQueueState,
    ClusterSnapshot,
    FlavorQuota,
    SchedulableCluster,
)
from windlass.jobs.scheduling.runtimes import (
    methods_of,
    require_method,
    require_runtime,
    runtimes_of,
)

BACKENDS = frozenset({"trl", "plain", "unheard-of"})


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what clusters have, this server has two."""

    def get_backend(name: str) -> type[LLMBackend]:
        found: dict[str, type[LLMBackend]] = {"trl": TRLConfig, "plain": OfBefore}
        if name not in found:
            raise BackendError(name)
        return found[name]

    monkeypatch.setattr(runtimes, "get_backend", get_backend)


def kubernetes(project: str, name: str, backends: frozenset[str] = BACKENDS) -> SchedulableCluster:
    return SchedulableCluster(
        id=f"cluster-{name}",
        name=name,
        executor="kubernetes",
        backends=backends,
        assigned={project: Assigned(place=ProjectPlacement(cluster_queue="q"))},
        queues={
            "q": ClusterQueueState(
                name="q",
                quotas=(FlavorQuota(resource="nvidia.com/gpu", attainable=8, available=0),),
            )
        },
    )


def test_a_project_sees_backends_of_its_clusters_alone() -> None:
    snapshot = ClusterSnapshot(
        clusters=(
            kubernetes("proj-a", "west"),
            kubernetes("proj-a", "east", frozenset({"trl"})),
            kubernetes("proj-b", "secret", frozenset({"plain"})),
        )
    )
    plain, trl = runtimes_of(snapshot, "proj-a")
    assert (plain.name, trl.name) == ("plain", "trl")
    assert [place.name for place in trl.clusters] == ["east", "west"]
    assert [place.name for place in plain.clusters] == ["west"]
    assert [place.gpus for place in trl.clusters] == [8, 8]
    assert [one.name for one in runtimes_of(snapshot, "proj-b")] == ["plain"]
    assert runtimes_of(snapshot, "proj-c") == []


def test_a_laptop_is_everyones() -> None:
    snapshot = ClusterSnapshot(
        clusters=(SchedulableCluster(id="c", name="local", shared=True, gpus=1, backends=BACKENDS),)
    )
    assert [one.name for one in runtimes_of(snapshot, "anyone")] == ["plain", "trl"]
    assert runtimes_of(snapshot, "anyone")[1].clusters[0].gpus == 1


def test_who_names_a_runtime_is_told_which_there_are() -> None:
    snapshot = ClusterSnapshot(clusters=(kubernetes("proj-a", "west"),))
    plain = require_runtime(snapshot, "proj-a", "plain")
    require_method(plain, "supervised")
    with pytest.raises(InvalidArgument, match="'plain' supports supervised, not dpo") as refused:
        require_method(plain, "dpo")
    assert refused.value.param == "windlass.runtime"
    for project, name, why in (
        ("proj-a", "mlx", r"offers 'mlx' to this project. Offered: plain, trl\.$"),
        ("proj-b", "trl", r"offers 'trl' to this project. Offered: none\.$"),
        ("proj-a", "unheard-of", r"Offered: plain, trl\.$"),
        ("proj-a", "plian", r"Offered: plain, trl\. Did you mean 'plain'\?$"),
        ("proj-b", "plian", r"Offered: none\.$"),
    ):
        with pytest.raises(InvalidArgument, match=why) as refused:
            require_runtime(snapshot, project, name)
        assert refused.value.param == "windlass.runtime"


def test_a_backend_says_what_it_trains_by() -> None:
    assert set(methods_of(TRLConfig)) == {
        "supervised", "dpo", "reinforcement", "rloo", "kto", "orpo", "reward", "distillation",
    }  # fmt: skip
    assert methods_of(OfTrainJobs) == ()
    assert methods_of(OfBefore) == ("supervised",)


class OfTrainJobs(LLMBackend):
    name = "train-jobs"
    framework = "none"
    schema_version = 1

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        return ()

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        return []


class OfBefore(OfTrainJobs):
    """It has not heard of graders."""

    @classmethod
    def from_openai(  # type: ignore[override]  # an older signature
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
    ) -> Self:
        from windlass.backends import InvalidConfig

        if method != "supervised":
            raise InvalidConfig("method.type" if method == "dpo" else "windlass.method", "is none")
        return cls()

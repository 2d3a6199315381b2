"""Who may load a model of an unknown type is given the benefit of the doubt."""

import pytest

from windlass.api.models.v1 import models_pb2
from windlass.backends import LLMBackend
from windlass.backends.trl import TRLConfig
from windlass.core.errors import InvalidArgument
from windlass.jobs.creation.starting import Start, require_known_type
from windlass.jobs.scheduling.cluster_snapshot import (
    KUBERNETES,
    ClusterSnapshot,
    SchedulableCluster,
)

ODD = models_pb2.Model(warnings=["Models of type 'odd' are known to nobody."])
MACHINE = SchedulableCluster(id="m", shared=True, backends=frozenset({"trl"}))
PODS = SchedulableCluster(id="k", shared=True, executor=KUBERNETES, backends=frozenset({"trl"}))
OTHERS = SchedulableCluster(id="o", shared=True, executor=KUBERNETES, backends=frozenset({"tune"}))


class Foreign(TRLConfig):
    """A backend of another package."""


@pytest.mark.parametrize("clusters", [(MACHINE,), (MACHINE, OTHERS)])
def test_a_type_that_no_trainer_knows_is_refused(clusters: tuple[SchedulableCluster, ...]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        require_known_type(Start("m", ODD, ODD), TRLConfig, ClusterSnapshot(clusters=clusters), "p")
    assert refused.value.message == (
        "'m' cannot be trained here. Models of type 'odd' are known to nobody."
    )


@pytest.mark.parametrize(
    ("backend", "snapshot"),
    [
        (TRLConfig, None),
        (TRLConfig, ClusterSnapshot()),
        (TRLConfig, ClusterSnapshot(clusters=(MACHINE, PODS))),
        (TRLConfig, ClusterSnapshot(clusters=(MACHINE,), shared_away=True)),
        (TRLConfig, ClusterSnapshot(clusters=(MACHINE,), assignments={"p": frozenset({"away"})})),
        (Foreign, ClusterSnapshot(clusters=(MACHINE,))),
    ],
)
def test_what_may_know_it_is_tried(
    backend: type[LLMBackend], snapshot: ClusterSnapshot | None
) -> None:
    require_known_type(Start("m", ODD, ODD), backend, snapshot, "p")


def test_a_known_type_is_of_no_concern() -> None:
    llama = models_pb2.Model()
    require_known_type(
        Start("m", llama, llama), TRLConfig, ClusterSnapshot(clusters=(MACHINE,)), "p"
    )

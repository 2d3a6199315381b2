"""Claims of the tables and objects of tuning."""

from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, by_project, erased, nobodys
from windlass.tuning.pods.tables import pods
from windlass.tuning.publishing.tables import versions
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning.storage.tables import (
    checkpoints,
    loans,
    losses,
    operations,
    owed_usage,
    runs,
    samplers,
    sessions,
)

CLAIMS = LeavingClaims(
    "tuning",
    (
        erased(operations),
        erased(owed_usage),
        erased(samplers),
        erased(losses),
        erased(loans),
        erased(versions),
        erased(checkpoints),
        erased(runs),
        erased(sessions),
        nobodys(leases, "the operator's devices"),
        nobodys(pods, "they go with the sessions that they are for"),
        nobodys(seats, "they go with the processes that hold them"),
    ),
    (ObjectClaim("tuning", by_project("tuning")),),
)

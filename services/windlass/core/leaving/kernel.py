"""Claims of the kernel's tables."""

from windlass.core.keyring.keyring import shared_secrets
from windlass.core.keyring.seals import root_keys
from windlass.core.leaving.claims import LeavingClaims, ids_alone, nobodys
from windlass.core.leaving.tables import erasures, steps
from windlass.core.rpc.tokens import keys

CLAIMS = LeavingClaims(
    "core",
    (
        nobodys(root_keys, "the installation's own key"),
        nobodys(shared_secrets, "the installation's own secrets"),
        nobodys(keys, "keys of our processes"),
        ids_alone(erasures, why="the proof that something was erased"),
        nobodys(steps, "counts, by the erasure's id"),
    ),
)

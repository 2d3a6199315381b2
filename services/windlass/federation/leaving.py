"""Claims of the table of federation."""

from windlass.core.leaving.claims import LeavingClaims, erased
from windlass.federation.tables import objects

CLAIMS = LeavingClaims("federation", (erased(objects),))

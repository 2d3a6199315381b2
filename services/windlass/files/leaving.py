"""Claims of the tables and objects of files."""

from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, by_project, erased
from windlass.files.store import files, uploads

CLAIMS = LeavingClaims(
    "files",
    (erased(uploads), erased(files)),
    (ObjectClaim("files", by_project("files")),),
)

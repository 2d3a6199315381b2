"""Allow-list for the JSON files of a model folder, checked before transformers or PEFT reads them.

Their loaders pass most keys on to constructors, and some constructors open a string as a file.
See docs/adr/0027-model-documents-by-allow-list.md.
"""

from windlass.modelfiles.documents import MOST_BYTES, check_document, is_document, most_bytes
from windlass.modelfiles.folder import check_folder
from windlass.modelfiles.refusal import RefusedDocument

__all__ = [
    "MOST_BYTES",
    "RefusedDocument",
    "check_document",
    "check_folder",
    "is_document",
    "most_bytes",
]

"""Rules for the files of a model, checked before transformers or PEFT reads them.

Loaders pass most keys of JSON files on to constructors, and some open a string as a file.
See docs/adr/0027-model-documents-by-allow-list.md.

May import nothing else of Windlass, neither transformers nor torch.
"""

from windlass.modelfiles.architectures import known_types, unknown_type
from windlass.modelfiles.chat_templates import (
    CHAT_TEMPLATE,
    chat_template,
    fitting,
    given_template,
    has_chat_template,
    misfits,
)
from windlass.modelfiles.documents import check_document, is_document
from windlass.modelfiles.encoders.embedding import generates
from windlass.modelfiles.folder import check_files, check_folder
from windlass.modelfiles.layout import check_model, check_path, check_paths, check_sizes, is_data
from windlass.modelfiles.naming import ID_RULE, id_of_folder, is_model_id
from windlass.modelfiles.refusal import RefusedDocument
from windlass.modelfiles.weights import (
    PREFIX_BYTES,
    TensorFacts,
    check_header,
    header_bytes,
    is_gguf,
    is_safetensors,
    is_weights,
    loaded,
)

__all__ = [
    "CHAT_TEMPLATE",
    "ID_RULE",
    "PREFIX_BYTES",
    "RefusedDocument",
    "TensorFacts",
    "chat_template",
    "check_document",
    "check_files",
    "check_folder",
    "check_header",
    "check_model",
    "check_path",
    "check_paths",
    "check_sizes",
    "fitting",
    "generates",
    "given_template",
    "has_chat_template",
    "header_bytes",
    "id_of_folder",
    "is_data",
    "is_document",
    "is_gguf",
    "is_model_id",
    "is_safetensors",
    "is_weights",
    "known_types",
    "loaded",
    "misfits",
    "unknown_type",
]

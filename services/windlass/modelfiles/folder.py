"""Checks of a model folder on disk, before it is loaded or sent."""

import json
from collections.abc import Mapping
from pathlib import Path

from windlass.modelfiles.documents import check_document, is_document, max_bytes
from windlass.modelfiles.encoders.embedding import generates
from windlass.modelfiles.layout import check_model, check_paths, check_sizes
from windlass.modelfiles.refusal import RefusedDocument
from windlass.modelfiles.weights import PREFIX_BYTES, check_header, header_bytes, is_weights

_ADAPTER_CONFIG = "adapter_config.json"


def check_folder(folder: Path, *, adapter: bool = False) -> None:
    """Refuses what `check_document` refuses, also in a stored folder; raises RefusedDocument.

    transformers loads the base that an adapter's configuration names, so that only a folder that
    is read as an `adapter` may have one.
    """
    known = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.resolve().is_relative_to(folder.resolve())
    }
    for name in known:
        if Path(name).name.lower() == _ADAPTER_CONFIG and not adapter:
            raise RefusedDocument(f"{name!r}: an adapter cannot be imported as a base model.")
    _check_documents({name: folder / name for name in known}, adapter=adapter)


def check_files(files: Mapping[str, Path]) -> None:
    """Refuses what the import of these files would refuse, which are given by their names there.

    Headers of weights are read, and no tensors; raises RefusedDocument.
    """
    sizes = {name: path.stat().st_size for name, path in files.items()}
    check_paths(list(files))
    check_sizes(sizes)
    check_model(sizes)
    _check_documents(files)
    # For its refusal of a way to vectors that no engine has.
    generates(json.loads(files["config.json"].read_bytes()), files)
    for name, path in files.items():
        if is_weights(name):
            with path.open("rb") as file:
                length = header_bytes(name, file.read(PREFIX_BYTES), sizes[name])
                check_header(name, file.read(length), sizes[name])


def _check_documents(files: Mapping[str, Path], *, adapter: bool = False) -> None:
    tensors = (path for name, path in files.items() if is_weights(name))
    # An adapter's are not those of the model whose configuration may lie beside it.
    weights = None if adapter else sum(path.stat().st_size for path in tensors)
    for name, path in sorted(files.items()):
        if is_document(name):
            if path.stat().st_size > max_bytes(name):
                raise RefusedDocument(f"{name!r} is too large to be read.")
            check_document(name, path.read_bytes(), known=files.keys(), weights=weights)

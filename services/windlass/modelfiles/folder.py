"""A model folder on the disk of whoever is about to load it."""

from pathlib import Path

from windlass.modelfiles.documents import check_document, is_document, most_bytes
from windlass.modelfiles.refusal import RefusedDocument

_ADAPTER_CONFIG = "adapter_config.json"


def check_folder(folder: Path, *, adapter: bool = False) -> None:
    """Refuses what `check_document` refuses, whoever let it in; raises RefusedDocument.

    transformers loads the base that an adapter's configuration names, so that only a folder that
    is read as an `adapter` may have one.
    """
    known = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.resolve().is_relative_to(folder.resolve())
    }
    files = [folder / name for name in known if name.endswith(".safetensors")]
    # An adapter's are not those of the model whose configuration may lie beside it.
    weights = None if adapter else sum(file.stat().st_size for file in files)
    for name in sorted(known):
        if Path(name).name.lower() == _ADAPTER_CONFIG and not adapter:
            raise RefusedDocument(f"{name!r}: an adapter cannot be imported as a base model.")
        if is_document(name):
            path = folder / name
            if path.stat().st_size > most_bytes(name):
                raise RefusedDocument(f"{name!r} is too large to be read.")
            check_document(name, path.read_bytes(), known=known, weights=weights)

"""The id that an imported model may have, and the one that its folder suggests."""

import re
import unicodedata
from pathlib import Path

ID_LENGTH = 128
# Of any model, with what training adds to the id of its base.
MODEL_NAME_LENGTH = 256
# `:` separates the parts of a fine-tuned model's name, so an import may not use it.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
ID_RULE = (
    f"at most {ID_LENGTH} letters, digits, '.', '_', '-' and at most one '/', beginning with a "
    "letter or digit."
)
_OTHERS = re.compile(r"[^A-Za-z0-9._-]+")
_HUB_FOLDER = "models--"


def is_model_id(name: str) -> bool:
    """Returns True if an import may have this id."""
    return len(name) <= ID_LENGTH and bool(_ID.fullmatch(name)) and ".." not in name


def id_of_folder(folder: Path) -> str:
    """Returns an id made of a folder's name; raises ValueError where none can be made.

    A snapshot in the Hub's cache lies beneath the name of its repository.
    """
    name = folder.name
    if folder.parent.name == "snapshots" and folder.parents[1].name.startswith(_HUB_FOLDER):
        name = folder.parents[1].name.removeprefix(_HUB_FOLDER)
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    found = re.sub(r"\.{2,}", ".", _OTHERS.sub("-", plain)).strip("._-")
    if not is_model_id(found):
        raise ValueError(f"No id can be made of the folder's name {name!r}: give one with --id.")
    return found


def tuned_model_id(base: str, organization_id: str, suffix: str, ending: str) -> str:
    """`ft:<base>:<organization>:<suffix>:<ending>`.

    `base` may be a fine-tuned model, of which the name of the first base is taken.
    """
    root = base.removeprefix("ft:").partition(":")[0]
    organization = organization_id.removeprefix("org-")[:12].lower()
    return f"ft:{root}:{organization}:{suffix}:{ending}"

"""Domain of files; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.bounds import MAX_FILE_SECONDS, MIN_FILE_SECONDS
from windlass.core.errors import InvalidArgument
from windlass.core.suggestions import did_you_mean

# What a client may upload for, since OpenAI's other purposes are of APIs that are not here;
# services register the output purposes.
UPLOAD_PURPOSES = frozenset({"fine-tune", "user_data"})
FILENAME_LENGTH = 255
CONVERTER_LENGTH = 64
_FORMAT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
# A fine-tuning file up to here is inspected while its upload waits, so that a
# bad one is refused at once; a larger one is inspected afterwards.
INSPECT_AT_ONCE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class File:
    """One stored file."""

    id: str
    organization_id: str
    project_id: str
    filename: str
    purpose: str
    size: int
    sha256: bytes
    created_at: int
    expires_at: int
    status: str
    status_details: str
    dataset_format: str
    examples: int
    object_key: str
    provenance: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Upload:
    """A ticket: content may be put under this key, and then committed."""

    id: str
    file_id: str
    organization_id: str
    project_id: str
    filename: str
    purpose: str
    expires_after: int
    object_key: str
    provenance: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class InspectionResult:
    """Result of inspecting a fine-tuning file."""

    status: str
    details: str = ""
    format: str = ""
    examples: int = 0


def valid_purpose(purpose: str) -> str:
    """A purpose that a client may upload for; raises InvalidArgument."""
    if purpose not in UPLOAD_PURPOSES:
        known = ", ".join(sorted(UPLOAD_PURPOSES))
        raise InvalidArgument(
            f"purpose cannot be {purpose!r}; it must be one of {known}."
            f"{did_you_mean(purpose, UPLOAD_PURPOSES)}",
            reason="invalid_purpose",
            param="purpose",
        )
    return purpose


def valid_filename(filename: str, *, param: str = "file") -> str:
    """The last component of a file's name; raises InvalidArgument.

    It is shown and sent in headers, and never becomes a path of ours.
    """
    name = filename.replace("\\", "/").rpartition("/")[2].strip()
    if not name or len(name.encode()) > FILENAME_LENGTH or not name.isprintable():
        raise InvalidArgument(
            f"A filename must be 1 to {FILENAME_LENGTH} printable bytes.", param=param
        )
    return name


def valid_expiry(seconds: int) -> int:
    """Seconds to live, 0 for ever; raises InvalidArgument."""
    if seconds and not MIN_FILE_SECONDS <= seconds <= MAX_FILE_SECONDS:
        raise InvalidArgument(
            f"expires_after.seconds must be between {MIN_FILE_SECONDS} and {MAX_FILE_SECONDS}.",
            param="expires_after.seconds",
        )
    return seconds


def valid_provenance(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what a file was converted from, as its uploader says; raises InvalidArgument.

    Nothing here is acted upon: it is kept, and shown.
    """
    rows, skipped, converter = given["rows"], given["skipped"], given["converter"]
    filename = valid_filename(given["filename"], param=_at("filename"))
    is_named = converter.isprintable() and 0 < len(converter) <= CONVERTER_LENGTH
    # Whether a field is sound, and what it must be.
    fields = {
        "format": (_FORMAT.fullmatch(given["format"]), "1 to 32 of a to z, 0 to 9, _ and -"),
        "sha256": (_SHA256.fullmatch(given["sha256"]), "64 hexadecimal digits in lower case"),
        "rows": (rows > 0, "1 or more"),
        "skipped": (0 <= skipped < rows, "0 or more, and less than rows"),
        "converter": (is_named, f"1 to {CONVERTER_LENGTH} printable characters"),
    }
    for name, (is_sound, expected) in fields.items():
        if not is_sound:
            raise InvalidArgument(f"{_at(name)} must be {expected}.", param=_at(name))
    return {**given, "filename": filename}


def _at(name: str) -> str:
    return f"windlass.provenance.{name}"

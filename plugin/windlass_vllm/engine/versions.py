"""Versions of vLLM in which training inside an engine was tested."""

from importlib import metadata

TESTED: tuple[str, ...] = ("0.32.0", "0.31.0", "0.30.0")
"""One for each row that the tests run; a version that is not here is left untouched."""


def installed() -> str:
    """Returns the version of vLLM here without its build; empty where there is none."""
    try:
        return metadata.version("vllm").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def is_tested(version: str) -> bool:
    """Returns whether a version is in the table."""
    return version in TESTED

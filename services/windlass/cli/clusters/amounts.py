"""Amounts of resources, as people and Kubernetes write them."""

import re
from decimal import Decimal

import typer

from windlass.cli.framework.values import size

UNLIMITED = "none"
_BYTES = {"memory", "ephemeral-storage"}
_UNITS = ("Ti", "Gi", "Mi", "Ki")
Number = int | float


def amount(text: str | Number, resource: str) -> Number:
    """`8`, `1.5` or `500m` of cpu in cores, `64Gi` of memory in bytes; raises BadParameter."""
    text = str(text).strip()
    if resource in _BYTES:
        return size(text)
    if resource == "cpu" and re.fullmatch(r"\d{1,12}(\.\d{1,3})?|\d{1,15}m", text):
        cores = Decimal(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)
        return int(cores) if cores == int(cores) else float(cores)
    if not re.fullmatch(r"\d{1,15}", text):
        raise typer.BadParameter(f"{text!r} is not an amount of {resource}.")
    return int(text)


def limit(text: str | Number | None, resource: str) -> Number | None:
    """An amount, or None for `none`."""
    return None if text in (None, UNLIMITED) else amount(text, resource)


def spelled_amount(value: Number | None, resource: str) -> str:
    """An amount for a person to read; empty for none."""
    if value is None:
        return ""
    if resource in _BYTES and value:
        for power, unit in zip(range(len(_UNITS), 0, -1), _UNITS, strict=True):
            if value % 1024**power == 0:
                return f"{value // 1024**power}{unit}"
    return f"{value:g}" if isinstance(value, float) else str(value)

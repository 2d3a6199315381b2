"""Ids that the shell completes, asked of the server; silent and quick when it is away."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from windlass.cli.framework import context
from windlass.cli.framework.calling import connect
from windlass.cli.framework.columns import Item
from windlass.cli.framework.context import Flags

if TYPE_CHECKING:
    from windlass.client import Windlass

SECONDS = 2.0
MAX_ITEMS = 500


def jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Jobs, newest first."""
    return _offers(ctx, "/v1/fine_tuning/jobs", incomplete, ("status", "model"))


def files(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Files, newest first."""
    return _offers(ctx, "/v1/files", incomplete, ("filename", "status"))


def models(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Models, newest first."""
    return _offers(ctx, "/v1/models", incomplete, ("owned_by",))


def tunable_models(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Models that jobs can start from, newest first."""
    return _offers(ctx, "/v1/models", incomplete, ("owned_by",), fits=_is_tunable)


def _is_tunable(model: Item) -> bool:
    about = model.get("windlass") or {}
    return about.get("task") != "scoring"


def contexts(incomplete: str) -> list[str]:
    """Stored contexts."""
    try:
        return [name for name in context.load().known if name.startswith(incomplete)]
    except Exception:  # whatever fails, a shell must not hear of it
        return []


def _offers(
    ctx: typer.Context,
    path: str,
    incomplete: str,
    about: tuple[str, ...],
    fits: Callable[[Item], bool] = bool,
) -> list[tuple[str, str]]:
    try:
        with _client(ctx.params) as client:
            items = list(client.pages(path, limit=MAX_ITEMS))
    except Exception:  # whatever fails, a shell must not hear of it
        return []
    return [
        (item["id"], " ".join(str(item[key]) for key in about if item.get(key)))
        for item in items
        if item["id"].startswith(incomplete) and fits(item)
    ]


def _client(params: dict[str, Any]) -> "Windlass":
    data = params.get("data")
    flags = Flags(
        base_url=params.get("base_url") or "",
        api_key=params.get("api_key") or "",
        context=params.get("context_name") or "",
        data=Path(data) if data else None,
        project=params.get("project") or "",
        organization=params.get("organization") or "",
        ca=params.get("ca") or "",
    )
    return connect(context.resolve(flags, os.environ, context.load()), timeout=SECONDS)

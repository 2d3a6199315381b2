"""`windlass files convert`, and the conversion before an upload."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.jobs.faults import as_items, show_faults

if TYPE_CHECKING:
    from windlass.datasets.sources import Conversion


class SourceFormat(StrEnum):
    """Formats of a source; `docs/how-to/convert-your-data.md` says what each holds."""

    AUTO = "auto"
    CHAT = "chat"
    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    PREFERENCE = "preference"
    CSV = "csv"
    PARQUET = "parquet"


_TABLES = (SourceFormat.CSV, SourceFormat.PARQUET)


def convert(
    call: Call,
    source: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)],
    to: Annotated[
        Path | None,
        typer.Option(help="File to write; default: beside the source, as .jsonl."),
    ] = None,
    format_: Annotated[
        SourceFormat, typer.Option("--format", help="SourceFormat of the source; auto detects it.")
    ] = SourceFormat.AUTO,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot be converted.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Converts Alpaca, ShareGPT, CSV, Parquet and others to a training file."""
    target = to or source.with_name(target_name(source))
    if target.exists() and not force:
        raise Problem(f"{target} already exists; pass --force to replace it.", USAGE)
    found = converted(call, source, target, format_, strict=strict)
    item: Item = {
        "file": str(target),
        "format": found.format,
        "source": str(source),
        "read_as": read_as(found),
        "rows_read": found.read,
        "rows_written": found.written,
        "rows_skipped": found.skipped.count,
        "left_out": dict(found.left_out),
        "sha256": found.sha256,
        "skipped": as_items(found.skipped),
    }
    show_faults(call.out, item, "skipped", of=str(target))
    call.out.note(f"Check it: windlass files check {target}")


def converted(
    call: Call, source: Path, target: Path, given: SourceFormat, *, strict: bool = False
) -> "Conversion":
    """Converts a file and says what it was taken for; raises Problem where nothing comes of it."""
    from windlass.datasets import DatasetError
    from windlass.datasets.shapes import RowShape
    from windlass.datasets.sources import SourceContainer, convert

    is_shape = given is not SourceFormat.AUTO and given not in _TABLES
    try:
        with call.out.waiting(f"converting {source.name}", source.stat().st_size) as line:
            found = convert(
                source,
                target,
                shape=RowShape(given) if is_shape else None,
                container=SourceContainer(given) if given in _TABLES else None,
                strict=strict,
                progress=line.advance,
            )
    except DatasetError as error:
        where = f"Row {error.line}: " if error.line else ""
        raise Problem(f"{source}: {where}{error.message}", USAGE) from None
    if not found.written:
        raise Problem(f"{source}: {_nothing(found)}", USAGE)
    call.out.note(
        f"{source.name} is {read_as(found)}: {found.written:,} of {found.read:,} rows became "
        f"{found.format} examples."
    )
    return found


@contextmanager
def ready(call: Call, source: Path, given: SourceFormat) -> Iterator[tuple[Path, Item]]:
    """Yields a converted file to upload, gone afterwards, and what it was converted from."""
    from importlib.metadata import version

    with TemporaryDirectory(prefix="windlass-") as folder:
        made = Path(folder, f"{source_stem(source)}.jsonl")
        found = converted(call, source, made, given)
        yield (
            made,
            {
                "filename": source.name,
                "format": found.shape,
                "sha256": found.sha256,
                "rows": found.read,
                "skipped": found.skipped.count,
                "converter": f"windlass {version('windlass')}",
            },
        )


def read_as(found: "Conversion") -> str:
    """Returns what a source was taken for, such as `alpaca (json, gzip)`."""
    within = ", ".join(filter(None, (found.container, found.compression)))
    return f"{found.shape} ({within})"


def target_name(source: Path) -> str:
    """Name of the file that a source becomes; never the source's own."""
    stem = source_stem(source)
    name = f"{stem}.jsonl"
    return f"{stem}.converted.jsonl" if name == source.name else name


def source_stem(source: Path) -> str:
    """Name of a source without what says its format and compression."""
    from windlass.datasets.sources.containers import plain_name

    return source.name[: len(Path(plain_name(source)).stem)]


def _nothing(found: "Conversion") -> str:
    if not found.read:
        return "The file contains no rows."
    first = found.skipped.kinds[0]
    where = f"Row {first.lines[0]}: " if first.lines else ""
    return f"None of {found.read:,} rows could be converted. {where}{first.message}"

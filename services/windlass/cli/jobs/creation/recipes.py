"""Recipes: settings that go together, by name. Each is a file of `recipes/*.yaml`."""

from pathlib import Path

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.prefixes import did_you_mean
from windlass.cli.jobs.creation.document import JobDocument, read

FOLDER = Path(__file__).parent / "recipes"
_COLUMNS = {"NAME": field("name"), "METHOD": field("method"), "ABOUT": field("about")}


def names() -> list[str]:
    """The names of all recipes, in order."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def completed(incomplete: str) -> list[str]:
    """The names that begin so."""
    return [name for name in names() if name.startswith(incomplete)]


def recipe(name: str) -> Item:
    """The fields of a job that a recipe sets; raises Problem for a name that none has."""
    if name not in names():
        hint = did_you_mean(name, names()) or " See windlass jobs recipes."
        raise Problem(f"There is no recipe {name!r}.{hint}", USAGE)
    return read(_file(name))


def list_recipes(call: Call) -> None:
    """Lists the recipes of `windlass jobs create --recipe`."""
    call.out.items([_item(name) for name in names()], _COLUMNS)


def _item(name: str) -> Item:
    document = recipe(name)
    lines = _file(name).read_text(encoding="utf-8").splitlines()
    about, *notes = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return {
        "id": name,
        "name": name,
        "method": JobDocument(document).method,
        "about": about,
        "notes": " ".join(notes),
        "document": document,
    }


def _file(name: str) -> Path:
    return FOLDER / f"{name}.yaml"

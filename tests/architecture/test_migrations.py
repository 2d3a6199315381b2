"""Migrations make one line: a server that finds two heads does not start."""

from pathlib import Path

from alembic.script import ScriptDirectory

from windlass import migrations


def test_there_is_one_head() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1


def test_each_says_what_it_revises() -> None:
    """Alembic reads the variable, and people the docstring."""
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    wrong = [
        one.revision
        for one in script.walk_revisions()
        if one.down_revision and f"\nRevises: {one.down_revision}\n" not in str(one.module.__doc__)
    ]
    assert wrong == []


def test_each_can_be_undone() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    revisions = script.walk_revisions()
    assert [one.revision for one in revisions if not hasattr(one.module, "downgrade")] == []

"""Migrations make one line: a server that finds two heads does not start."""

from pathlib import Path

from alembic.script import ScriptDirectory

from windlass import migrations


def test_there_is_one_head() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert len(script.get_heads()) == 1
    assert len(script.get_bases()) == 1

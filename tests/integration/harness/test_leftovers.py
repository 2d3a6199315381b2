"""Databases outside a test run's temporary folder go with it, and no other does."""

from pathlib import Path

from tests.leftovers import remove_databases


def test_only_databases_of_the_runs_own_folders_are_removed(tmp_path: Path) -> None:
    home, run = tmp_path / "lib", tmp_path / "pytest-7"
    for name, data in (("mine", run / "gw0" / "data"), ("another", tmp_path / "pytest-70")):
        (home / name / "cluster").mkdir(parents=True)
        (home / name / "belongs-to").write_text(f"{data}\n")
    (home / "programs").mkdir()
    remove_databases(home, of=run)
    assert {path.name for path in home.iterdir()} == {"another", "programs"}

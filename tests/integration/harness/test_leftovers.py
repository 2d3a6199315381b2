"""What test runs leave on disk goes with them, or with the next one, and nothing else does."""

import os
import subprocess
from pathlib import Path

from tests.leftovers import (
    remove_databases,
    remove_dead_runs,
    remove_dead_servers,
    remove_orphans,
)
from tests.support.environments.postgres import PREFIX


def test_only_databases_of_the_runs_own_folders_are_removed(tmp_path: Path) -> None:
    home, run = tmp_path / "lib", tmp_path / "pytest-7"
    for name, data in (("mine", run / "gw0" / "data"), ("another", tmp_path / "pytest-70")):
        (home / name / "cluster").mkdir(parents=True)
        (home / name / "belongs-to").write_text(f"{data}\n")
    (home / "programs").mkdir()
    remove_databases(home, of=run)
    assert {path.name for path in home.iterdir()} == {"another", "programs"}


def test_what_a_killed_run_has_left_is_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as dead:
        dead.wait()
    for name, pid in (("pytest-1", dead.pid), ("pytest-2", os.getpid())):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".lock").write_text(str(pid))
    for name in (f"{PREFIX}{dead.pid}-a", f"{PREFIX}{os.getpid()}-b", "pytest-3", "other"):
        (tmp_path / name).mkdir()
    remove_dead_runs(tmp_path)
    remove_dead_servers(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"pytest-2", "pytest-3", "other", f"{PREFIX}{os.getpid()}-b"}


def test_databases_of_data_folders_that_are_gone_are_removed(tmp_path: Path) -> None:
    home, here = tmp_path / "lib", tmp_path / "pytest-of-x" / "data"
    here.mkdir(parents=True)
    of = {"live": here, "gone": tmp_path / "pytest-of-x" / "gone", "foreign": Path("/srv/gone")}
    for name, data in of.items():
        (home / name).mkdir(parents=True)
        (home / name / "belongs-to").write_text(f"{data}\n")
    remove_orphans(home)
    assert {path.name for path in home.iterdir()} == {"live", "foreign"}

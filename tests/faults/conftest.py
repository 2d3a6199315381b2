"""Installations to break."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.site import Site
from tests.support.environments import made_once, postgres
from tests.support.processes.windlass import make_single, running


@pytest.fixture(scope="session")
def base_folder() -> Path:
    """The demo's base model; kept between runs, since its recipe names it."""
    return made_once.tiny_model()


@pytest.fixture(scope="session")
def site(base_folder: Path) -> Iterator[Site]:
    """One process with everything, as `windlass serve` is on a laptop; every test mends it."""
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data")
        with running(made):
            site = Site(made)
            site.import_base(base_folder)
            yield site
        site.assert_no_process()
        assert not (folder / "data" / "postgres" / "cluster" / "postmaster.pid").exists()
        postgres.remove_database(folder / "data")


@pytest.fixture(scope="session")
def training_file(site: Site) -> str:
    """A small training file of the shared installation."""
    return site.upload()

"""A whole installation, in one process and in one process per target."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clients.wire import Wire
from tests.support.environments import made_once, postgres
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.processes import shapes
from tests.support.processes.front_door import Front
from tests.support.processes.windlass import Windlass, make_single, running

from windlass.client import Windlass as Client

BASE = "tiny-llama"


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's base model; kept between runs, since its recipe names it."""
    return made_once.tiny_model()


# The demo and the first hour are in one process.
_SHAPES = [
    pytest.param(
        shape, marks=pytest.mark.long if shape == shapes.ONE and shape != shapes.CHOSEN else ()
    )
    for shape in shapes.SHAPES
]


@pytest.fixture(scope="module", params=_SHAPES)
def windlass(
    request: pytest.FixtureRequest, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Windlass]:
    """A running installation, in each of its shapes."""
    with postgres.reachable_folder() as folder:
        data = folder / "data"
        if request.param == shapes.ONE:
            # On a Postgres of its own, as a newcomer has it.
            with running(make_single(data, cold=True)) as made:
                yield made
            postgres.remove_database(data)
            return
        with (
            postgres.fresh_database(postgres_url) as url,
            shapes.installation(request.param, data, url) as made,
        ):
            yield made


@pytest.fixture(scope="module")
def base_model(windlass: Windlass, base_folder: Path) -> str:
    """The base model, imported by the platform's administrator."""
    with Client(windlass.url, windlass.owner_key) as client:
        client.models.import_folder(BASE, base_folder, for_everyone=True)
    return BASE


@pytest.fixture(scope="session")
def front(postgres_url: str) -> Iterator[Front]:
    """An installation without an agent, so that jobs wait; its database may be looked into."""
    with postgres.reachable_folder() as folder, postgres.fresh_database(postgres_url) as url:
        settings = {
            "agent": {"enabled": False},
            "sessions": {"kubernetes": {"listen": "127.0.0.1:0"}},
        }
        shape = shapes.CHOSEN or shapes.ONE
        with shapes.installation(shape, folder / "data", url, settings) as made:
            yield Front(made, url)


@pytest.fixture(scope="session")
def tenants(front: Front) -> Tenants:
    """Two organizations with keys of every role."""
    return make_tenants(front.windlass)


@pytest.fixture(scope="session")
def wire(front: Front) -> Iterator[Wire]:
    """The RPCs behind the front door."""
    made = Wire(front)
    yield made
    made.close()

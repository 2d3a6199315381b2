"""One installation for every call of every permission."""

from collections.abc import Iterator

import pytest
from tests.support.clients.wire import Wire
from tests.support.databases.emptied import Databases
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.permissions.threaded_front import SOCKET, threaded_front
from tests.support.processes.front_door import Front


@pytest.fixture(scope="package")
def front(empty_databases: Databases) -> Iterator[Front]:
    with (
        reachable_folder() as folder,
        empty_databases.one() as url,
        threaded_front(url, folder / "data") as windlass,
    ):
        yield Front(windlass, url)


@pytest.fixture(scope="module")
def tenants(front: Front) -> Tenants:
    """Organizations of one file: what a granted call does, it does to them."""
    return make_tenants(front.windlass)


@pytest.fixture(scope="package")
def wire(front: Front) -> Iterator[Wire]:
    made = Wire(front, SOCKET)
    yield made
    made.close()

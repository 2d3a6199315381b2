"""What is another's costs as much to refuse as what never was: no time tells one from the other.

Queries are counted, since no clock of a test is fine enough; all of a call's own are, and none of
what loops of the same process do meanwhile.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.message import Message
from tests.support.clients.wire import Wire, methods_for, short
from tests.support.databases.emptied import Databases
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.tenant_rpcs.acme import make_names
from tests.support.factories.tenant_rpcs.names import Names
from tests.support.factories.tenant_rpcs.of_a_project import OF_A_PROJECT
from tests.support.factories.tenant_rpcs.of_an_organization import OF_AN_ORGANIZATION
from tests.support.factories.tenants import Caller, Tenants, make_tenants
from tests.support.permissions.threaded_front import SOCKET, threaded_front
from tests.support.processes.front_door import Front

from windlass.api.auth.v1 import auth_pb2
from windlass.core.errors import AppError
from windlass.core.rpc import auth

METHODS = {short(name): name for name in methods_for(auth_pb2.AUDIENCE_TENANT)}
# Of each call, at most: what is kept for seconds, as a project's state is, is asked for by some.
TIMES = 10


@pytest.fixture(scope="module")
def front(empty_databases: Databases) -> Iterator[Front]:
    with (
        reachable_folder() as folder,
        empty_databases.one() as url,
        threaded_front(url, folder / "data") as windlass,
    ):
        yield Front(windlass, url)


@pytest.fixture(scope="module")
def tenants(front: Front) -> Tenants:
    return make_tenants(front.windlass)


@pytest.fixture(scope="module")
def wire(front: Front) -> Iterator[Wire]:
    made = Wire(front, SOCKET)
    yield made
    made.close()


@pytest.fixture(scope="module")
def mine(front: Front, tenants: Tenants, wire: Wire) -> Names:
    return make_names(tenants, wire, front)


@pytest.fixture(scope="module")
def counted() -> Iterator[Counter[str]]:
    """Statements of this process by the key on whose behalf they are."""
    found: Counter[str] = Counter()

    def count(*_: Any) -> None:
        try:
            found[auth.current().key_id] += 1
        except AppError:
            return

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    yield found
    sa.event.remove(sa.Engine, "before_cursor_execute", count)


@pytest.mark.parametrize("name", [*OF_A_PROJECT, *OF_AN_ORGANIZATION])
def test_a_foreign_name_costs_what_a_name_costs_that_never_was(
    wire: Wire, tenants: Tenants, mine: Names, counted: Counter[str], name: str
) -> None:
    requests = {**OF_A_PROJECT, **OF_AN_ORGANIZATION}[name]
    outsiders = (tenants.sibling, tenants.stranger)
    for outsider in outsiders if name in OF_A_PROJECT else outsiders[1:]:

        def took(request: Message, by: Caller = outsider) -> int:
            """The statements of a call, which is refused."""
            before = counted[by.key_id]
            assert wire.refusal(METHODS[name], request, wire.credentials(by)) is not None
            return counted[by.key_id] - before

        for foreign, unknown in zip(requests(mine), requests(Names.never()), strict=True):
            least = [took(foreign), took(unknown)]
            for _ in range(TIMES):
                if least[0] == least[1]:
                    break
                least = [min(least[0], took(foreign)), min(least[1], took(unknown))]
            assert least[0] == least[1], (outsider.role, foreign)


def test_statements_are_counted(
    wire: Wire, tenants: Tenants, mine: Names, counted: Counter[str]
) -> None:
    request = OF_A_PROJECT["FilesService/GetFile"](mine)[0]
    wire.call(METHODS["FilesService/GetFile"], request, wire.credentials(tenants.member))
    assert counted[tenants.member.key_id] > 0

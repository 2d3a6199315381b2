"""A model on two machines, for tests that end what its answers go through."""

from collections.abc import Iterator

import pytest
from tests.faults.serving.served import ServedSite, served_site
from tests.support.environments import postgres
from tests.support.factories.toy_model import make_model


@pytest.fixture(scope="module")
def database(postgres_url: str, schema_template: str) -> Iterator[str]:
    with postgres.fresh_database(postgres_url, template=schema_template) as url:
        yield url.replace("+psycopg", "")


@pytest.fixture(scope="module")
def served(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    model = make_model(tmp_path_factory.mktemp("model") / "toy")
    with postgres.reachable_folder() as folder, served_site(folder, database, model) as made:
        yield made

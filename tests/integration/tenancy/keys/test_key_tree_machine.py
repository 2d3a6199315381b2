"""Keys made, changed, rotated and revoked in any order, against the real stores.

No live key is wider than the live key that made it, no key stands above itself, and a secret
answers exactly while its key lives and it is the last one.
"""

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from windlass.core.clock import now_seconds
from windlass.core.config import QuotasSection
from windlass.core.db import Database
from windlass.core.errors import AppError, FailedPrecondition, Unauthenticated
from windlass.core.quotas import Quotas
from windlass.users.domain import ApiKey
from windlass.users.keys.changes import KeyChanges, NewSecret
from windlass.users.keys.restrictions import require_within
from windlass.users.keys.store import KeyStore, key_of
from windlass.users.store import TenantStore
from windlass.users.tables import api_keys

T = TypeVar("T")
TABLES = "users_organizations, users_projects, users_members, users_api_keys, users_key_changes"
SCOPES = st.sets(st.sampled_from(["files.read", "jobs.read", "keys.write"]), max_size=2)
NETWORKS = st.sets(st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32"]), max_size=2)
MODELS = st.sets(st.sampled_from(["toy", "ft:*", "ft:toy:*", "t*"]), max_size=2)
LIVES = st.sampled_from([0, 1000, 2000])
WHICH = st.integers(0, 7)


class KeyTree(RuleBasedStateMachine):
    """An organization whose owner has one key to begin with."""

    database_url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.database = Database(self.database_url, pool_size=2)
        self.keys, self.changes = KeyStore(self.database), KeyChanges(self.database)
        self.numbers = itertools.count()
        self.now = now_seconds()
        # The last secret of each key, those of before, and those that are revoked.
        self.secrets: dict[str, bytes] = {}
        self.old: list[bytes] = []
        self.organization = self.run(self._begin())
        self.add("", set(), set(), set(), 0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _begin(self) -> str:
        async with self.database.begin() as connection:
            await connection.execute(sa.text(f"TRUNCATE {TABLES}"))
        tenants = TenantStore(self.database, Quotas(QuotasSection()))
        made = await tenants.create_organization("Acme", owner="ann", role="organization_owner")
        return made.id

    def teardown(self) -> None:
        self.run(self.database.close())
        self.runner.close()

    def rows(self) -> dict[str, ApiKey]:
        async def read() -> dict[str, ApiKey]:
            async with self.database.autocommit() as connection:
                return {row.id: key_of(row) for row in await connection.execute(api_keys.select())}

        return self.run(read())

    def live(self, number: int) -> str:
        alive = sorted(one.id for one in self.rows().values() if not one.revoked_at)
        return alive[number % len(alive)]

    def some_live(self) -> bool:
        return any(not one.revoked_at for one in self.rows().values())

    def add(
        self, parent: str, scopes: set[str], networks: set[str], models: set[str], life: int
    ) -> None:
        identifier = f"key_{next(self.numbers):03}"
        secret = identifier.encode()
        key = ApiKey(
            identifier, "k", self.organization, "", "ann", "organization_owner", "", self.now,
            self.now + life if life else 0, 0, 0, "ann", parent,
            scopes=tuple(sorted(scopes)), networks=tuple(sorted(networks)),
            models=tuple(sorted(models)),
        )  # fmt: skip
        try:
            self.run(self.keys.create(key, secret))
        except AppError:
            return
        self.secrets[identifier] = secret

    @rule()
    def recover(self) -> None:
        self.add("", set(), set(), set(), 0)

    @precondition(some_live)
    @rule(parent=WHICH, scopes=SCOPES, networks=NETWORKS, models=MODELS, life=LIVES)
    def create(
        self, parent: int, scopes: set[str], networks: set[str], models: set[str], life: int
    ) -> None:
        self.add(self.live(parent), scopes, networks, models, life)

    @precondition(some_live)
    @rule(key=WHICH, by=WHICH, scopes=SCOPES, networks=NETWORKS, models=MODELS, life=LIVES)
    def update(
        self,
        key: int,
        by: int,
        scopes: set[str],
        networks: set[str],
        models: set[str],
        life: int,
    ) -> None:
        def change(found: ApiKey) -> ApiKey:
            return replace(
                found,
                scopes=tuple(sorted(scopes)),
                networks=tuple(sorted(networks)),
                models=tuple(sorted(models)),
                expires_at=self.now + life if life else 0,
            )

        before = self.rows()
        work = self.changes.update(self.organization, self.live(key), change, by=self.live(by))
        try:
            self.run(work)
        except AppError:
            assert self.rows() == before

    @precondition(some_live)
    @rule(key=WHICH, by=WHICH, overlap=st.sampled_from([0, 3600]))
    def rotate(self, key: int, by: int, overlap: int) -> None:
        identifier, before = self.live(key), self.rows()
        secret = f"{identifier}-{next(self.numbers)}".encode()
        work = self.changes.rotate(
            self.organization, identifier, NewSecret(secret, "", overlap), by=self.live(by)
        )
        try:
            self.run(work)
        except AppError:
            assert self.rows() == before
            return
        if not overlap:
            self.old.append(self.secrets[identifier])
        self.secrets[identifier] = secret

    @precondition(some_live)
    @rule(key=WHICH)
    def revoke(self, key: int) -> None:
        self.run(self.keys.revoke(self.organization, self.live(key)))

    @invariant()
    def no_key_is_wider_than_what_made_it(self) -> None:
        rows = self.rows()
        for one in rows.values():
            if one.revoked_at or not one.parent_key_id:
                continue
            parent = rows[one.parent_key_id]
            assert not parent.revoked_at
            require_within(one, parent)
            above = {one.id}
            while parent.parent_key_id:
                assert parent.id not in above
                above.add(parent.id)
                parent = rows[parent.parent_key_id]

    @invariant()
    def the_last_secret_of_a_live_key_answers(self) -> None:
        rows = self.rows()
        for identifier, secret in self.secrets.items():
            assert self.answers(secret) == (not rows[identifier].revoked_at)
        assert not any(map(self.answers, self.old))

    def answers(self, secret: bytes) -> bool:
        try:
            self.run(self.keys.lookup(secret, organization_id="", project_id=""))
        except (Unauthenticated, FailedPrecondition):
            return False
        return True


def test_keys_and_what_was_made_with_them(database_url: str) -> None:
    KeyTree.database_url = database_url
    run_state_machine_as_test(
        KeyTree,
        settings=settings(
            max_examples=12,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )

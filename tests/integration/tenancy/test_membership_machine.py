"""Members and keys in any order, against the real store and a model of a page.

No key answers that should not, every key that should does, with the role that it should have:
no more than its owner, its maker and those above it hold. A departure ends what it said that it
would. The platform, the organization and the project keep somebody who answers for them.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest import mock

import pytest
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

from windlass.core.config import QuotasSection
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, Unauthenticated
from windlass.core.quotas import Quotas
from windlass.policy import OWNER_ROLES, ROLES, lesser
from windlass.users.domain import ApiKey, Member
from windlass.users.keys import store as keys_module
from windlass.users.keys.store import KeyStore
from windlass.users.membership.store import MemberStore
from windlass.users.store import TenantStore

T = TypeVar("T")
PEOPLE = ("ann", "bob", "eve")
ORGANIZATION = ("platform_admin", "organization_owner", "organization_reader")
PROJECT = ("project_owner", "project_member")
TABLES = "users_organizations, users_projects, users_members, users_api_keys, users_key_changes"


def grants(role: str | None, other: str) -> bool:
    return role is not None and ROLES[other] <= ROLES[role]


@dataclass
class Made:
    """A key as the model has it."""

    owner: str
    project: bool
    role: str
    parent: str
    people: frozenset[str]
    expires_at: int
    revoked: bool = False


class Memberships(RuleBasedStateMachine):
    """An organization with one project."""

    database_url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = int(time.time())
        self.patched = mock.patch.object(keys_module, "now_seconds", self.now)
        self.patched.start()
        self.database = Database(self.database_url, pool_size=2)
        self.members, self.keys = MemberStore(self.database), KeyStore(self.database)
        self.run(self._begin())
        # (in the project?, person) to role
        self.roles = {(False, "ann"): "platform_admin", (True, "ann"): "project_owner"}
        self.made: dict[str, Made] = {}

    def now(self) -> int:
        return self.clock

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _begin(self) -> None:
        async with self.database.begin() as connection:
            await connection.execute(sa.text(f"TRUNCATE {TABLES}"))
        tenants = TenantStore(self.database, Quotas(QuotasSection()))
        made = await tenants.create_organization("Acme", owner="ann", role="platform_admin")
        self.organization = made.id
        (project,) = await tenants.projects(made.id, only="", after="", limit=2, archived=False)
        self.project = project.id

    def teardown(self) -> None:
        self.run(self.database.close())
        self.patched.stop()
        self.runner.close()

    def scope(self, in_project: bool) -> str:
        return self.project if in_project else ""

    def leaves_nobody(self, in_project: bool, who: str, becoming: str) -> bool:
        old = self.roles.get((in_project, who), "")
        others = [r for (p, w), r in self.roles.items() if p == in_project and w != who]
        if old == "platform_admin" != becoming and "platform_admin" not in others:
            return True
        loses = old in OWNER_ROLES and becoming not in OWNER_ROLES
        return loses and OWNER_ROLES.isdisjoint(others)

    @rule(who=st.sampled_from(PEOPLE), role=st.sampled_from(ORGANIZATION + PROJECT))
    def put(self, who: str, role: str) -> None:
        in_project = role in PROJECT
        member = Member(self.organization, self.scope(in_project), who, role, self.clock)
        if self.leaves_nobody(in_project, who, role):
            with pytest.raises(FailedPrecondition):
                self.run(self.members.put(member))
            return
        self.run(self.members.put(member))
        self.roles[in_project, who] = role

    @rule(who=st.sampled_from(PEOPLE), in_project=st.booleans())
    def remove(self, who: str, in_project: bool) -> None:
        foretold = {key for key, role in self.affected(in_project, who, "").items() if not role}
        work = self.members.remove(self.organization, self.scope(in_project), who)
        if self.leaves_nobody(in_project, who, ""):
            with pytest.raises(FailedPrecondition):
                self.run(work)
            return
        ended = self.run(work)
        self.roles.pop((in_project, who), None)
        if not in_project:
            self.roles.pop((True, who), None)
            if not any(p and role == "project_owner" for (p, _), role in self.roles.items()):
                heirs = [w for (p, w), role in self.roles.items() if not p and role in OWNER_ROLES]
                self.roles.update({(True, heir): "project_owner" for heir in heirs})
        live = [(k, one) for k, one in self.made.items() if not one.revoked]
        gone = {k for k, one in live if one.owner == who and (one.project or not in_project)}
        gone |= {
            k
            for k, one in live
            if who in one.people and (one.project or not in_project) and not self.worth(one, {who})
        }
        assert set(ended) == gone == foretold
        for key in gone:
            self.made[key].revoked = True

    @rule(who=st.sampled_from(PEOPLE), role=st.sampled_from(ORGANIZATION + PROJECT))
    def foretell(self, who: str, role: str) -> None:
        in_project = role in PROJECT
        affected = self.affected(in_project, who, role)
        resting = {k: one for k, one in self.made.items() if who in one.people and not one.revoked}
        if in_project:
            resting = {k: one for k, one in resting.items() if one.project}
        before = {k: self.worth(one, {who}) for k, one in resting.items()}
        with mock.patch.dict(self.roles, {(in_project, who): role}):
            after = {k: self.worth(one, {who}) for k, one in resting.items()}
        # A role at the organization that is another may be less here and no more there.
        lost = {k: after[k] for k, was in before.items() if was and not grants(after[k], was)}
        assert affected == lost

    def affected(self, in_project: bool, who: str, role: str) -> dict[str, str | None]:
        member = Member(self.organization, self.scope(in_project), who, role, self.clock)
        found = self.run(self.members.affected_keys(member, after="", limit=1000))
        return {key.id: becomes for key, becomes in found}

    @rule(
        data=st.data(),
        owner=st.sampled_from(PEOPLE),
        role=st.sampled_from(ORGANIZATION + PROJECT),
        seconds=st.sampled_from((0, 0, 5, 50)),
    )
    def make(self, data: st.DataObject, owner: str, role: str, seconds: int) -> None:
        parent = data.draw(st.sampled_from(["", *self.made]))
        expires_at = self.clock + seconds if seconds else 0
        identifier = f"key_{len(self.made)}"
        above = self.made.get(parent)
        maker = above.owner if above else owner
        key = ApiKey(
            identifier, "k", self.organization, self.scope(role in PROJECT), owner, role, "wl-...",
            self.clock, expires_at, 0, 0, maker, parent,
        )  # fmt: skip
        if above and (above.revoked or 0 < above.expires_at <= self.clock):
            with pytest.raises(Unauthenticated):
                self.run(self.keys.create(key, identifier.encode()))
            return
        self.run(self.keys.create(key, identifier.encode()))
        ends = [end for end in (expires_at, above.expires_at if above else 0) if end]
        end = min(ends, default=0)
        people = frozenset({owner, maker}) | (above.people if above else frozenset())
        self.made[identifier] = Made(owner, role in PROJECT, role, parent, people, end)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.made)))
        self.run(self.keys.revoke(self.organization, key))
        self._revoke(key)

    def _revoke(self, key: str) -> None:
        self.made[key].revoked = True
        for child, one in self.made.items():
            if one.parent == key:
                self._revoke(child)

    @rule(seconds=st.sampled_from((1, 5, 50)))
    def wait(self, seconds: int) -> None:
        self.clock += seconds

    @invariant()
    def keys_answer_as_they_should(self) -> None:
        for identifier, key in self.made.items():
            over = key.revoked or 0 < key.expires_at <= self.clock
            expected = None if over else self.worth(key, key.people)
            assert self.run(self._role(identifier)) == expected

    def worth(self, key: Made, people: Iterable[str]) -> str | None:
        held = [
            [r for (p, w), r in self.roles.items() if w == who and (key.project or not p)]
            for who in people
        ]
        return lesser(key.role, *held, project_id=self.scope(key.project))

    async def _role(self, identifier: str) -> str | None:
        try:
            found = await self.keys.lookup(identifier.encode(), organization_id="", project_id="")
        except Unauthenticated:
            return None
        return found.roles[0] if found.roles else ""

    @invariant()
    def nobody_is_locked_out(self) -> None:
        for in_project in (False, True):
            listed = self.run(
                self.members.list(self.organization, self.scope(in_project), after="", limit=10)
            )
            roles = {one.user_id: one.role for one in listed}
            assert roles == {w: r for (p, w), r in self.roles.items() if p == in_project}
            assert not OWNER_ROLES.isdisjoint(roles.values())
            assert in_project or "platform_admin" in roles.values()


def test_memberships_and_keys(database_url: str) -> None:
    Memberships.database_url = database_url
    run_state_machine_as_test(
        Memberships,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""Roles: who may do what, and who may give what."""

import itertools

import pytest

from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.rbac.domain import PERMISSIONS, ROLES, decide, permissions_of
from windlass.users.domain import ROLE_NUMBERS, require_grant


def principal(role: str) -> Principal:
    return Principal("org-a", "proj_a", "user", roles=(role,), permissions=permissions_of((role,)))


def test_users_and_rbac_know_the_same_roles() -> None:
    assert set(ROLES) == set(ROLE_NUMBERS)


@pytest.mark.parametrize(("giver", "given"), list(itertools.product(ROLES, ROLES)))
def test_nobody_gives_more_than_they_have(giver: str, given: str) -> None:
    try:
        require_grant((giver,), given)
    except PermissionDenied:
        return
    assert ROLES[given] <= ROLES[giver]


def test_an_unknown_role_grants_nothing() -> None:
    assert permissions_of(("root",)) == frozenset()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("permission", sorted(PERMISSIONS))
def test_nothing_of_another_organization_is_allowed(role: str, permission: str) -> None:
    allowed, reason = decide(principal(role), permission, organization_id="org-b")
    assert not allowed
    assert reason


def test_a_project_member_stays_in_the_project() -> None:
    member, owner = principal("project_member"), principal("organization_owner")
    assert decide(member, "jobs.write", project_id="proj_a")[0]
    assert not decide(member, "jobs.write", project_id="proj_b")[0]
    assert decide(owner, "jobs.write", project_id="proj_b")[0]


def test_a_reader_changes_nothing() -> None:
    assert all(permission.endswith(".read") for permission in ROLES["organization_reader"])

"""Roles: who may do what, and who may give what."""

import pytest

from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import (
    OWNER_ROLES,
    PERMISSIONS,
    PLATFORM_ROLES,
    PROJECT_ROLES,
    ROLES,
    lesser,
    permissions_of,
)
from windlass.rbac.domain import decide
from windlass.users.domain import ROLE_NUMBERS, require_role

# What each may give or take, said here once more so that a slip in the policy shows.
GIVES = {
    "platform_admin": set(ROLES),
    "organization_owner": set(ROLES) - {"platform_admin", "cluster_operator"},
    "cluster_operator": {"cluster_operator", "organization_reader"},
    "organization_auditor": {
        "organization_auditor",
        "organization_reader",
        "organization_billing",
    },
    "organization_reader": {"organization_reader"},
    "organization_billing": {"organization_billing"},
    "project_owner": {"project_owner", "project_member", "project_viewer"},
    "project_member": {"project_member", "project_viewer"},
    "project_viewer": {"project_viewer"},
}


def principal(role: str) -> Principal:
    return Principal("org-a", "proj_a", "user", roles=(role,), permissions=permissions_of((role,)))


def test_users_and_rbac_know_the_same_roles() -> None:
    assert set(ROLES) == set(ROLE_NUMBERS)


@pytest.mark.parametrize("giver", ROLES)
def test_a_role_gives_itself_and_what_is_below_it(giver: str) -> None:
    for given in ROLES:
        if given in GIVES[giver]:
            require_role((giver,), given)
        else:
            with pytest.raises(PermissionDenied):
                require_role((giver,), given)


def test_scopes_and_owners_follow_from_what_roles_grant() -> None:
    assert {"project_owner", "project_member", "project_viewer"} == PROJECT_ROLES
    assert {"platform_admin", "organization_owner", "project_owner"} == OWNER_ROLES
    assert {"platform_admin"} == PLATFORM_ROLES


def test_a_key_is_the_lesser_of_its_role_and_its_owners() -> None:
    assert lesser("organization_owner", ["platform_admin"], project_id="") == "organization_owner"
    assert lesser("project_owner", ["project_member"], project_id="proj") == "project_member"
    assert lesser("project_member", ["project_viewer"], project_id="proj") == "project_viewer"
    assert (
        lesser("organization_owner", ["organization_auditor"], project_id="")
        == "organization_auditor"
    )
    assert lesser("cluster_operator", ["organization_owner"], project_id="") == (
        "organization_reader"
    )
    assert lesser("project_member", ["organization_reader"], project_id="proj") is None
    assert lesser("organization_owner", ["project_owner"], project_id="") is None


def test_a_key_is_within_the_roles_of_everybody_on_whom_it_rests() -> None:
    owners, member, reader = ["organization_owner"], ["project_member"], ["organization_reader"]
    assert lesser("project_owner", owners, member, project_id="proj") == "project_member"
    assert lesser("project_owner", owners, reader, project_id="proj") is None
    assert lesser("project_member", owners, [], project_id="proj") is None


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


def test_a_reader_changes_nothing_and_may_ask_for_more() -> None:
    readers = ("organization_auditor", "organization_reader", "organization_billing")
    for role in (*readers, "project_viewer"):
        writes = {name for name in ROLES[role] if not name.endswith(".read")}
        assert writes == {"elevations.write"}

"""Audit events in OCSF: their class, what happened to whom, and nothing that a caller can forge."""

import json
from typing import Any

import pytest

from windlass.rbac.exports.ocsf import line, ocsf

USERS = "windlass.api.users.v1."
# What the classes require beside the attributes of every event.
REQUIRED = {
    3002: {"user", "service"},
    3003: {"user", "privileges"},
    3006: {"group"},
    3007: {"user"},
    3008: {"iam_role"},
    6003: {"actor", "api", "src_endpoint"},
}
BASE = {
    "activity_id", "category_uid", "class_uid", "severity_id", "time", "type_uid", "metadata",
}  # fmt: skip


def event(action: str, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    told = {"before": json.dumps(before) if before else "", "after": json.dumps(after or {})}
    return {
        "id": "audit_1", "at_ms": 1_700_000_000_123, "organization_id": "org_a",
        "project_id": "proj_a", "user_id": "ann@example.com", "key_id": "key_1",
        "action": action, "resource": "r", "outcome": "OK", "request_id": "req_1",
        "address": "192.0.2.1", "reason": "", "repeats": 0, "sequence": 7, "hash": bytes(32),
        "details_salt": "5a", "details_digest": "d1", **told, **more,
    }  # fmt: skip


MEMBER = {"user_id": "bob", "role": "project_member", "kind": "person"}
GIVEN = {"role_id": "role_1", "user_id": "bob"}


@pytest.mark.parametrize(
    ("action", "before", "after", "kind", "name"),
    [
        ("UsersService/PutMember", None, MEMBER, 300701, "Create"),
        ("UsersService/PutMember", {"role": "x"}, MEMBER, 300702, "Update"),
        ("UsersService/RemoveMember", MEMBER, None, 300703, "Delete"),
        ("UsersService/RemoveMember", {"id": "k", "kind": "key"}, None, 600304, "Delete"),
        ("RolesService/AssignRole", None, GIVEN, 300716, "Assign Roles"),
        ("RolesService/UnassignRole", GIVEN, None, 300717, "Remove Roles"),
        ("RolesService/AssignRole", None, {"role_id": "r", "group_id": "g"}, 300601,
         "Assign Privileges"),
        ("GroupsService/AddToGroup", None, {"group_id": "g", "user_id": "b"}, 300603, "Add User"),
        ("GroupsService/CreateGroup", None, {"id": "g", "name": "n"}, 300606, "Create"),
        ("GroupsService/UpdateGroup", {"name": "n"}, {"name": "m"}, 300699, "Other"),
        ("RolesService/CreateRole", None, {"name": "n", "permissions": ["a"]}, 300801, "Create"),
        ("UsersService/CreateApiKey", None, {"id": "k"}, 600301, "Create"),
        ("UsersService/RotateApiKey", None, None, 600303, "Update"),
        ("UsersService/ListMembers", None, None, 600302, "Read"),
        ("UsersInternalService/RevealSecret", None, None, 600302, "Read"),
        ("UsersService/TestSomething", None, None, 600399, "Other"),
    ],
)  # fmt: skip
def test_an_event_has_its_class(action: str, before: Any, after: Any, kind: int, name: str) -> None:
    told = ocsf(event(USERS + action, before, after))
    assert (told["type_uid"], told["activity_name"]) == (kind, name)
    assert told["class_uid"] * 100 + told["activity_id"] == kind
    assert told["category_uid"] == told["class_uid"] // 1000
    assert told.keys() >= BASE | REQUIRED[told["class_uid"]]
    assert told["metadata"]["version"] == "1.9.0"
    assert told["time"] == 1_700_000_000_123


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("gateway/POST /v1/chat/completions", 600301),
        ("kubernetes/get pods", 600302),
        ("kubernetes/delete pods", 600304),
        ("gateway/*", 600399),
        ("", 600399),
        ("sign_in", 300201),
        ("windlass.api.sessions.v1.SessionsService/CreateAccess", 300301),
    ],
)
def test_other_ways_in_have_theirs(action: str, kind: int) -> None:
    told = ocsf(event(action))
    assert told["type_uid"] == kind
    assert told.keys() >= BASE | REQUIRED[told["class_uid"]]


def test_who_from_where_and_why() -> None:
    told = ocsf(
        event(
            "gateway/GET /x", outcome="PERMISSION_DENIED", reason="address_not_allowed", repeats=4
        )
    )
    assert told["actor"]["user"]["email_addr"] == "ann@example.com"
    assert told["actor"]["session"]["credential_uid"] == "key_1"
    assert told["src_endpoint"] == {"ip": "192.0.2.1"}
    assert (told["status"], told["status_code"], told["severity"]) == (
        "Failure", "PERMISSION_DENIED", "Medium",
    )  # fmt: skip
    assert (told["status_detail"], told["count"]) == ("address_not_allowed", 5)
    nobody = ocsf(event("gateway/GET /x", user_id="", key_id="", address="", request_id=""))
    assert nobody["actor"] == {"app_name": "Windlass"}
    assert nobody["src_endpoint"] == {"name": "unknown"}


@pytest.mark.parametrize("hostile", ["a\nb", "\r\x1b[2J", "\u2028\u202e", '","x":"', "é"])
def test_a_line_is_one_line_whatever_callers_write(hostile: str) -> None:
    made = line(event(f"gateway/GET /{hostile}", resource=hostile, user_id=hostile))
    assert made.endswith(b"\n")
    assert made.isascii()
    assert made[:-1].decode().isprintable()
    assert json.loads(made)["actor"]["user"]["uid"] == hostile


@pytest.mark.parametrize("text", ["[]", "1", '"a"'])
def test_details_that_are_no_object_are_none(text: str) -> None:
    assert ocsf(event("s/Do", after=None) | {"after": text})["unmapped"]["after"] == {}

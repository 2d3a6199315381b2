"""Dangerous steps: what only owners may change asks for a fresh sign-in, or is listed here."""

import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tests.support.clients.wire import every_method, short

from windlass.api.auth.v1 import auth_pb2
from windlass.api.users.v1 import sign_in_pb2, users_pb2
from windlass.core.rpc.rules import asks_fresh_sign_in, is_change, rule_of
from windlass.policy import OWNER_ROLES, ROLES, permissions_of

METHODS = every_method()
_OWNERS = permissions_of(OWNER_ROLES) - permissions_of(set(ROLES) - OWNER_ROLES)
# Taking away is needed at once when something is wrong, and what it takes can be given back.
TAKING = {
    "DirectoryService/DeleteDirectoryGroup",
    "DirectoryService/DeletePerson",
    "ElevationsService/DenyElevation",
    "GroupsService/DeleteGroup",
    "GroupsService/RemoveFromGroup",
    "GroupsService/RemoveProjectGroup",
    "InvitesService/DeleteInvite",
    "MailDomainsService/DeleteMailDomain",
    "ModelPoliciesService/DeleteModelPolicy",
    "ModelsService/DeleteGrant",
    "RolesService/DeleteRole",
    "RolesService/UnassignRole",
    "TransferService/UnpublishCheckpoint",
    "UsersService/DeleteSecret",
    "UsersService/RemoveMember",
    "WorkloadIdentityService/DeleteFederationRule",
}
# Gives nobody power, lets nothing out, and can be undone.
HARMLESS = {
    "CertificatesService/CreateCertificate",
    "CertificatesService/DeleteCertificate",
    "CertificatesService/UpdateCertificate",
    "ErasuresService/GetErasure",
    "ErasuresService/HoldOrganization",
    "ErasuresService/ListErasures",
    "ErasuresService/UndeleteOrganization",
    "ErasuresService/UndeleteProject",
    "ExternalKeysService/ValidateExternalKey",
    "GroupsService/CreateGroup",
    "GroupsService/UpdateGroup",
    "MailDomainsService/VerifyMailDomain",
    "ModelPoliciesService/PutModelPolicy",
    "ModelsService/CreateGrants",
    "RolesService/CreateRole",
    "TransferService/PublishCheckpoint",
    "UsersService/CreateOrganization",
    "UsersService/CreateProject",
    "UsersService/PutOrganizationQuota",
    "UsersService/PutProjectQuota",
    "UsersService/PutSecret",
    "UsersService/UpdateProject",
}
# By the roles that a request gives.
BY_ROLE = {
    "InvitesService/CreateInvite",
    "UsersService/CreateApiKey",
    "UsersService/PutMember",
}
# By fields that a request sets.
BY_FIELD = {
    # Always.
    "ClustersService/RegisterCluster": {"geography"},
    # What stays in a geography goes to clusters with its label.
    "ClustersService/UpdateCluster": {"geography"},
    "InvitesService/CreateInvite": {"user_id"},
    "UsersService/RemoveMember": {"successor"},
    "UsersService/UpdateApiKey": {"scopes", "networks", "expires_in"},
}


def test_what_only_owners_change_is_dangerous_or_listed() -> None:
    free = set()
    for name, method in METHODS.items():
        rule = rule_of(name) or auth_pb2.Rule()
        owners = is_change(rule) and rule.permission in _OWNERS
        if owners and not rule.fresh_sign_in and not _may_give_power(method):
            free.add(short(name))
    assert free == TAKING | HARMLESS


def test_what_gives_roles_is_judged_by_them() -> None:
    found = {
        short(name)
        for name, method in METHODS.items()
        if is_change(rule_of(name) or auth_pb2.Rule()) and _may_give_power(method)
    }
    # Of the rest each asks always.
    always = {name for name in found - BY_ROLE if not _rule(name).fresh_sign_in}
    assert found >= BY_ROLE
    assert not always


def test_what_gives_power_by_a_field_is_judged_by_it() -> None:
    found = {
        short(name): fields
        for name, method in METHODS.items()
        if is_change(rule_of(name) or auth_pb2.Rule())
        and (fields := _powerful_fields(method.input_type))
    }
    assert found == BY_FIELD


def test_only_tenants_are_asked() -> None:
    """Agents and services are no people."""
    for name in METHODS:
        rule = rule_of(name) or auth_pb2.Rule()
        assert not rule.fresh_sign_in or rule.audience == auth_pb2.AUDIENCE_TENANT, name


OWNER, READER = users_pb2.ROLE_ORGANIZATION_OWNER, users_pb2.ROLE_ORGANIZATION_READER
ROOM = sign_in_pb2.InviteProject


@pytest.mark.parametrize(
    ("name", "request_", "asks"),
    [
        ("UsersService/PutMember", users_pb2.PutMemberRequest(role=OWNER), True),
        ("UsersService/PutMember", users_pb2.PutMemberRequest(role=READER), False),
        # What a later release names.
        ("UsersService/PutMember", users_pb2.PutMemberRequest(role=99), False),  # type: ignore[arg-type]  # no value of the enum
        ("UsersService/CreateApiKey", users_pb2.CreateApiKeyRequest(tags={"a": "b"}), False),
        (
            "InvitesService/CreateInvite",
            sign_in_pb2.CreateInviteRequest(
                role=READER,
                projects=[
                    ROOM(role=users_pb2.ROLE_PROJECT_VIEWER),
                    ROOM(role=users_pb2.ROLE_PROJECT_OWNER),
                ],
            ),
            True,
        ),
        # Whoever opens the link signs in as that member.
        ("InvitesService/CreateInvite", sign_in_pb2.CreateInviteRequest(user_id="ann"), True),
        ("InvitesService/CreateInvite", sign_in_pb2.CreateInviteRequest(role=READER), False),
        ("UsersService/RemoveMember", users_pb2.RemoveMemberRequest(user_id="ann"), False),
        # Who becomes the owner of what ann owned.
        ("UsersService/RemoveMember", users_pb2.RemoveMemberRequest(successor="bob"), True),
        ("UsersService/UpdateApiKey", users_pb2.UpdateApiKeyRequest(name="a"), False),
        # Of none, which is any.
        (
            "UsersService/UpdateApiKey",
            users_pb2.UpdateApiKeyRequest(networks=users_pb2.KeyNetworks()),
            True,
        ),
        ("UsersService/UpdateApiKey", users_pb2.UpdateApiKeyRequest(expires_in=0), True),
        # It is no change, so that nobody is given anything.
        ("UsersService/ListAffectedKeys", users_pb2.ListAffectedKeysRequest(role=OWNER), False),
        ("UsersService/RotateApiKey", users_pb2.RotateApiKeyRequest(), True),
    ],
)
def test_a_request_is_judged_by_what_it_gives(name: str, request_: Message, asks: bool) -> None:
    assert asks_fresh_sign_in(_rule(name), request_) is asks


def _rule(name: str) -> auth_pb2.Rule:
    (full,) = (one for one in METHODS if short(one) == name)
    rule = rule_of(full)
    assert rule is not None
    return rule


def _powerful_fields(message: Descriptor, within: tuple[str, ...] = ()) -> set[str]:
    """Names of the fields that a message may have in it which ask for a fresh sign-in."""
    found = set[str]()
    for field in message.fields:
        if field.GetOptions().Extensions[auth_pb2.set_asks_fresh_sign_in]:
            found.add(field.name)
        elif field.message_type is not None and field.message_type.full_name not in within:
            found |= _powerful_fields(field.message_type, (*within, message.full_name))
    return found


def _may_give_power(method: MethodDescriptor) -> bool:
    """Returns True if some request of the method has a role that owns something."""
    made = GetMessageClass(method.input_type)()
    if "role" in method.input_type.fields_by_name:
        field = method.input_type.fields_by_name["role"]
        if field.enum_type is not None:
            made.role = OWNER  # type: ignore[attr-defined]  # it has the field
            return asks_fresh_sign_in(
                auth_pb2.Rule(audience=auth_pb2.AUDIENCE_TENANT, permission="x.write"), made
            )
    return False

"""OpenAI's types of audit events, and what of ours they are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin.audit import event_details as of
from windlass.gateway.openai_admin.audit.event_details import LoggedEvent

_USERS = "windlass.api.users.v1.UsersService"
_GROUPS = "windlass.api.users.v1.GroupsService"
_ROLES = "windlass.api.users.v1.RolesService"
_MODELS = "windlass.api.models.v1.ModelsService"
_INVITES = "windlass.api.users.v1.InvitesService"
_DIRECTORY = "windlass.api.users.v1.DirectoryService"
_KEYS = "windlass.api.users.v1.ExternalKeysService"
_CERTIFICATES = "windlass.api.users.v1.CertificatesService"
_NETWORKS = "windlass.api.users.v1.AllowedNetworksService/PutAllowedNetworks"
_PROVIDERS = "windlass.api.users.v1.WorkloadIdentityService"
_KEY_POLICIES = "windlass.api.users.v1.KeyPoliciesService"
_SIGN_IN_POLICIES = "windlass.api.users.v1.SignInPoliciesService"
_ERASURES = "windlass.api.users.v1.ErasuresService"
_AUDIT = "windlass.api.rbac.v1.RbacService"
_WORKLOADS = "workload_identity_provider"
_RULES = f"{_WORKLOADS}_mapping"
_PERSON, _ACCOUNT, _KEY = "person", "service_account", "key"


@dataclass(frozen=True, slots=True)
class EventType:
    """A type of OpenAI's: an RPC of ours, with a change of that form, and its details there."""

    name: str
    action: str
    details: Callable[[LoggedEvent], Json]
    # Whether something was there before, and is there after; None: either.
    before: bool | None = None
    after: bool | None = None
    kind: str = ""
    # Whether it was done, or was refused or failed.
    succeeded: bool = True

    @property
    def match(self) -> pb.AuditMatch:
        """The same as a question to the log."""
        return pb.AuditMatch(
            action=self.action,
            before=self.before,
            after=self.after,
            kind=self.kind,
            succeeded=self.succeeded,
        )

    def is_of(self, event: LoggedEvent) -> bool:
        """Returns True if an event is of this type."""
        return (
            event.action == self.action
            and self.succeeded is (event.row.outcome == "OK")
            and self.before in (None, bool(event.before))
            and self.after in (None, bool(event.after))
            and self.kind in ("", event.kind)
        )


def _of_members(name: str, kind: str, added: str) -> tuple[EventType, ...]:
    put, removed = f"{_USERS}/PutMember", f"{_USERS}/RemoveMember"
    return (
        EventType(f"{name}.{added}", put, of.role_given, before=False, after=True, kind=kind),
        EventType(f"{name}.updated", put, of.role_changed, before=True, after=True, kind=kind),
        EventType(f"{name}.deleted", removed, of.identified, before=True, kind=kind),
    )


TYPES = (
    EventType("api_key.created", f"{_USERS}/CreateApiKey", of.key_made, kind=_KEY),
    EventType("api_key.updated", f"{_USERS}/UpdateApiKey", of.key_changed, kind=_KEY),
    EventType("api_key.updated", f"{_USERS}/RotateApiKey", of.key_changed, kind=_KEY),
    EventType("api_key.deleted", f"{_USERS}/RevokeApiKey", of.identified, kind=_KEY),
    # Those that end with a member.
    EventType("api_key.deleted", f"{_USERS}/RemoveMember", of.identified, before=True, kind=_KEY),
    EventType("project.created", f"{_USERS}/CreateProject", of.project_made),
    EventType("project.updated", f"{_USERS}/UpdateProject", of.project_changed),
    EventType("project.archived", f"{_USERS}/ArchiveProject", of.identified),
    EventType("project.deleted", f"{_ERASURES}/DeleteProject", of.identified),
    # Policies that OpenAI's organizations do not have: the id alone.
    *(
        EventType("organization.updated", action, of.identified, after=True)
        for action in (
            f"{_KEY_POLICIES}/PutKeyPolicy",
            f"{_SIGN_IN_POLICIES}/PutSignInPolicy",
            f"{_AUDIT}/PutAuditRetention",
        )
    ),
    *_of_members("user", _PERSON, "added"),
    *_of_members("service_account", _ACCOUNT, "created"),
    EventType("login.succeeded", "sign_in", of.nothing),
    EventType("login.failed", "sign_in", of.failure, succeeded=False),
    EventType("logout.succeeded", "sign_out", of.nothing),
    EventType("invite.sent", f"{_INVITES}/CreateInvite", of.invited),
    EventType("invite.accepted", "accept_invite", of.identified),
    EventType("invite.deleted", f"{_INVITES}/DeleteInvite", of.identified),
    EventType("scim.enabled", f"{_DIRECTORY}/PutDirectory", of.identified),
    EventType("scim.disabled", f"{_DIRECTORY}/DeleteDirectory", of.identified),
    EventType("certificate.created", f"{_CERTIFICATES}/CreateCertificate", of.named, after=True),
    EventType("certificate.updated", f"{_CERTIFICATES}/UpdateCertificate", of.named, after=True),
    EventType("certificate.deleted", f"{_CERTIFICATES}/DeleteCertificate", of.named),
    EventType("certificates.activated", f"{_CERTIFICATES}/ActivateCertificates", of.certificates),
    EventType(
        "certificates.deactivated", f"{_CERTIFICATES}/DeactivateCertificates", of.certificates
    ),
    # The one list that an organization has.
    EventType("ip_allowlist.created", _NETWORKS, of.networks, before=False, after=True),
    EventType("ip_allowlist.updated", _NETWORKS, of.networks, before=True, after=True),
    EventType("ip_allowlist.deleted", _NETWORKS, of.networks, before=True, after=False),
    EventType("external_key.registered", f"{_KEYS}/CreateExternalKey", of.registered, after=True),
    EventType("external_key.removed", f"{_KEYS}/DeleteExternalKey", of.identified),
    EventType(
        f"{_WORKLOADS}.created", f"{_PROVIDERS}/CreateWorkloadProvider", of.registered, after=True
    ),
    EventType(
        f"{_WORKLOADS}.updated", f"{_PROVIDERS}/UpdateWorkloadProvider", of.changed, after=True
    ),
    # Beside it, and beside what becomes of rules, tokens end.
    EventType(
        f"{_WORKLOADS}.deleted", f"{_PROVIDERS}/DeleteWorkloadProvider", of.identified, before=True
    ),
    EventType(f"{_RULES}.created", f"{_PROVIDERS}/CreateFederationRule", of.rule_made, after=True),
    EventType(
        f"{_RULES}.updated", f"{_PROVIDERS}/UpdateFederationRule", of.rule_changed, after=True
    ),
    EventType(
        f"{_RULES}.deleted", f"{_PROVIDERS}/DeleteFederationRule", of.rule_ended, before=True
    ),
    EventType("group.created", f"{_GROUPS}/CreateGroup", of.group_made),
    EventType("group.updated", f"{_GROUPS}/UpdateGroup", of.group_changed),
    EventType("group.deleted", f"{_GROUPS}/DeleteGroup", of.identified),
    EventType("role.created", f"{_ROLES}/CreateRole", of.role_made),
    EventType("role.updated", f"{_ROLES}/UpdateRole", of.role_edited),
    EventType("role.deleted", f"{_ROLES}/DeleteRole", of.identified),
    EventType("role.assignment.created", f"{_ROLES}/AssignRole", of.assignment, after=True),
    EventType("role.assignment.deleted", f"{_ROLES}/UnassignRole", of.assignment, before=True),
    EventType("checkpoint.permission.created", f"{_MODELS}/CreateGrants", of.grant, after=True),
    EventType("checkpoint.permission.deleted", f"{_MODELS}/DeleteGrant", of.identified),
)
# What OpenAI has a type for and nothing here does.
_OTHERS = frozenset({
    "external_storage.registered", "external_storage.removed", "ip_allowlist.config.activated",
    "ip_allowlist.config.deactivated", "logout.failed", "rate_limit.updated",
    "rate_limit.deleted", "resource.deleted", "tunnel.created", "tunnel.updated",
    "tunnel.deleted", "role.bound_to_resource", "role.unbound_from_resource",
})  # fmt: skip
# Beginning of the types of a tenant above organizations, which there is none of here.
TENANT = "tenant."
NAMES = frozenset(one.name for one in TYPES) | _OTHERS


def types_named(names: Iterable[str]) -> list[EventType]:
    """The types of these names, or all; raises InvalidArgument for a name that OpenAI has not."""
    wanted = set(names)
    unknown = sorted(one for one in wanted if one not in NAMES and not one.startswith(TENANT))
    if unknown:
        raise InvalidArgument(
            f"{unknown[0][:100]!r} is not a type of audit event. Events that OpenAI has no type "
            "for are in /v1/audit_events.",
            param="event_types",
        )
    return [one for one in TYPES if not wanted or one.name in wanted]


def type_of(event: LoggedEvent) -> EventType | None:
    """The type of an event; None where OpenAI has none."""
    return next((one for one in TYPES if one.is_of(event)), None)

"""Requests that name what an organization has."""

from collections.abc import Callable

from google.protobuf.message import Message
from tests.support.factories.tenant_rpcs.names import Names

from windlass.api.models.v1 import models_pb2 as models
from windlass.api.rbac.v1 import rbac_pb2 as rbac
from windlass.api.users.v1 import certificates_pb2 as certificates
from windlass.api.users.v1 import directory_pb2 as directory
from windlass.api.users.v1 import erasures_pb2 as erasures
from windlass.api.users.v1 import exports_pb2 as exports
from windlass.api.users.v1 import external_keys_pb2 as external_keys
from windlass.api.users.v1 import groups_pb2 as groups
from windlass.api.users.v1 import mail_domains_pb2 as mail_domains
from windlass.api.users.v1 import model_policies_pb2 as policies
from windlass.api.users.v1 import networks_pb2 as networks
from windlass.api.users.v1 import sign_in_pb2 as sign_in
from windlass.api.users.v1 import users_pb2 as users
from windlass.api.users.v1 import workload_identity_pb2 as workloads

OF_AN_ORGANIZATION: dict[str, Callable[[Names], list[Message]]] = {
    "AuditDestinationsService/GetAuditDestination": lambda n: [
        rbac.GetAuditDestinationRequest(destination_id=n.destination)
    ],
    "AuditDestinationsService/DeleteAuditDestination": lambda n: [
        rbac.DeleteAuditDestinationRequest(destination_id=n.destination)
    ],
    "DirectoryService/GetPerson": lambda n: [directory.GetPersonRequest(id=n.user)],
    "DirectoryService/ReplacePerson": lambda n: [
        directory.ReplacePersonRequest(
            id=n.user, profile=directory.PersonProfile(user_name="eve", active=False)
        )
    ],
    "DirectoryService/DeletePerson": lambda n: [directory.DeletePersonRequest(id=n.user)],
    "DirectoryService/GetDirectoryGroup": lambda n: [
        directory.GetDirectoryGroupRequest(id=n.group)
    ],
    "DirectoryService/ListDirectoryMembers": lambda n: [
        directory.ListDirectoryMembersRequest(group_id=n.group)
    ],
    "DirectoryService/ChangeDirectoryGroup": lambda n: [
        directory.ChangeDirectoryGroupRequest(id=n.group, name="mine"),
    ],
    "DirectoryService/DeleteDirectoryGroup": lambda n: [
        directory.DeleteDirectoryGroupRequest(id=n.group)
    ],
    "WorkloadIdentityService/GetWorkloadProvider": lambda n: [
        workloads.GetWorkloadProviderRequest(identity_provider_id=n.workload_provider)
    ],
    "WorkloadIdentityService/UpdateWorkloadProvider": lambda n: [
        workloads.UpdateWorkloadProviderRequest(
            identity_provider_id=n.workload_provider, name="mine"
        )
    ],
    "WorkloadIdentityService/DeleteWorkloadProvider": lambda n: [
        workloads.DeleteWorkloadProviderRequest(identity_provider_id=n.workload_provider)
    ],
    "WorkloadIdentityService/ListFederationRules": lambda n: [
        workloads.ListFederationRulesRequest(identity_provider_id=n.workload_provider)
    ],
    "GroupsService/GetGroup": lambda n: [groups.GetGroupRequest(group_id=n.group)],
    "GroupsService/UpdateGroup": lambda n: [
        groups.UpdateGroupRequest(group_id=n.group, name="mine")
    ],
    "GroupsService/DeleteGroup": lambda n: [groups.DeleteGroupRequest(group_id=n.group)],
    "GroupsService/AddToGroup": lambda n: [
        groups.AddToGroupRequest(group_id=n.group, user_id=n.user)
    ],
    "GroupsService/RemoveFromGroup": lambda n: [
        groups.RemoveFromGroupRequest(group_id=n.group, user_id=n.user)
    ],
    "GroupsService/ListGroupMembers": lambda n: [groups.ListGroupMembersRequest(group_id=n.group)],
    "IdentityProvidersService/GetIdentityProvider": lambda n: [
        sign_in.GetIdentityProviderRequest(provider_id=n.provider)
    ],
    "IdentityProvidersService/UpdateIdentityProvider": lambda n: [
        sign_in.UpdateIdentityProviderRequest(provider_id=n.provider, name="mine")
    ],
    "IdentityProvidersService/DeleteIdentityProvider": lambda n: [
        sign_in.DeleteIdentityProviderRequest(provider_id=n.provider)
    ],
    "SignInPoliciesService/ExplainMemberAccess": lambda n: [
        sign_in.ExplainMemberAccessRequest(user_id=n.user)
    ],
    "MailDomainsService/GetMailDomain": lambda n: [
        mail_domains.GetMailDomainRequest(name=n.mail_domain)
    ],
    "MailDomainsService/VerifyMailDomain": lambda n: [
        mail_domains.VerifyMailDomainRequest(name=n.mail_domain)
    ],
    "MailDomainsService/UpdateMailDomain": lambda n: [
        mail_domains.UpdateMailDomainRequest(name=n.mail_domain)
    ],
    "MailDomainsService/DeleteMailDomain": lambda n: [
        mail_domains.DeleteMailDomainRequest(name=n.mail_domain)
    ],
    "InvitesService/GetInvite": lambda n: [sign_in.GetInviteRequest(invite_id=n.invite)],
    "InvitesService/DeleteInvite": lambda n: [sign_in.DeleteInviteRequest(invite_id=n.invite)],
    "ExternalKeysService/GetExternalKey": lambda n: [
        external_keys.GetExternalKeyRequest(external_key_id=n.external_key)
    ],
    "ExternalKeysService/DeleteExternalKey": lambda n: [
        external_keys.DeleteExternalKeyRequest(external_key_id=n.external_key)
    ],
    "ExternalKeysService/ValidateExternalKey": lambda n: [
        external_keys.ValidateExternalKeyRequest(external_key_id=n.external_key)
    ],
    "ExternalKeysService/SetProjectKey": lambda n: [
        external_keys.SetProjectKeyRequest(project_id=n.project)
    ],
    "CertificatesService/GetCertificate": lambda n: [
        certificates.GetCertificateRequest(certificate_id=n.certificate)
    ],
    "CertificatesService/UpdateCertificate": lambda n: [
        certificates.UpdateCertificateRequest(certificate_id=n.certificate, name="mine")
    ],
    "CertificatesService/DeleteCertificate": lambda n: [
        certificates.DeleteCertificateRequest(certificate_id=n.certificate)
    ],
    "CertificatesService/ActivateCertificates": lambda n: [
        certificates.ActivateCertificatesRequest(certificate_ids=[n.certificate])
    ],
    "CertificatesService/DeactivateCertificates": lambda n: [
        certificates.DeactivateCertificatesRequest(certificate_ids=[n.certificate])
    ],
    "AllowedNetworksService/GetAllowedNetworks": lambda n: [
        networks.GetAllowedNetworksRequest(organization_id=n.organization)
    ],
    "AllowedNetworksService/PutAllowedNetworks": lambda n: [
        networks.PutAllowedNetworksRequest(organization_id=n.organization, networks=["10.0.0.0/8"])
    ],
    "UsersService/GetOrganization": lambda n: [
        users.GetOrganizationRequest(organization_id=n.organization)
    ],
    "ErasuresService/DeleteOrganization": lambda n: [
        erasures.DeleteOrganizationRequest(organization_id=n.organization)
    ],
    "ModelPoliciesService/PutModelPolicy": lambda n: [
        policies.PutModelPolicyRequest(
            project_id=n.project, mode=policies.MODEL_POLICY_MODE_DENY_LIST
        )
    ],
    "ModelPoliciesService/DeleteModelPolicy": lambda n: [
        policies.DeleteModelPolicyRequest(project_id=n.project)
    ],
    "ExportsService/GetExport": lambda n: [exports.GetExportRequest(export_id=n.export)],
    "ExportsService/OpenExport": lambda n: [exports.OpenExportRequest(export_id=n.export)],
    "ExportsService/ListExportParts": lambda n: [
        exports.ListExportPartsRequest(export_id=n.export)
    ],
    "ErasuresService/GetErasure": lambda n: [erasures.GetErasureRequest(erasure_id=n.erasure)],
    "UsersService/GetQuotas": lambda n: [users.GetQuotasRequest(project_id=n.project)],
    "UsersService/PutProjectQuota": lambda n: [
        users.PutQuotaRequest(project_id=n.project, name="jobs", bound=1)
    ],
    "ModelsService/CreateGrants": lambda n: [
        models.CreateGrantsRequest(model=n.model, project_ids=[n.project])
    ],
    "ModelsService/ListGrants": lambda n: [models.ListGrantsRequest(model=n.model)],
    "ModelsService/DeleteGrant": lambda n: [
        models.DeleteGrantRequest(model=n.model, grant_id="cp_" + "n" * 24)
    ],
}

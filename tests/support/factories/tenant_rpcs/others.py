"""Requests that list, that make something, and those of the platform."""

import time
from collections.abc import Callable

from google.protobuf.message import Message
from tests.support.factories.tenant_rpcs.names import Names

from windlass.api.clusters.v1 import clusters_pb2 as clusters
from windlass.api.files.v1 import files_pb2 as files
from windlass.api.inference.v1 import feeds_pb2 as feeds
from windlass.api.inference.v1 import inference_pb2 as inference
from windlass.api.jobs.v1 import jobs_pb2 as jobs
from windlass.api.models.v1 import models_pb2 as models
from windlass.api.rbac.v1 import rbac_pb2 as rbac
from windlass.api.tuning.v1 import seats_pb2 as seats
from windlass.api.tuning.v1 import tuning_pb2 as tuning
from windlass.api.usage.v1 import usage_pb2 as usage
from windlass.api.users.v1 import certificates_pb2 as certificates
from windlass.api.users.v1 import directory_pb2 as directory
from windlass.api.users.v1 import erasures_pb2 as erasures
from windlass.api.users.v1 import exports_pb2 as exports
from windlass.api.users.v1 import external_keys_pb2 as external_keys
from windlass.api.users.v1 import groups_pb2 as groups
from windlass.api.users.v1 import mail_domains_pb2 as mail_domains
from windlass.api.users.v1 import sign_in_pb2 as sign_in
from windlass.api.users.v1 import users_pb2 as users
from windlass.api.users.v1 import workload_identity_pb2 as workloads

# RPCs that answer with rows: for each a request for as many as may be seen.
LISTS: dict[str, Callable[[Names], Message]] = {
    "UsersService/ListOrganizations": lambda n: users.ListOrganizationsRequest(limit=100),
    "UsersService/ListProjects": lambda n: users.ListProjectsRequest(
        limit=100, include_archived=True
    ),
    "UsersService/ListMembers": lambda n: users.ListMembersRequest(limit=100),
    "UsersService/ListApiKeys": lambda n: users.ListApiKeysRequest(limit=100),
    "KeyPoliciesService/GetKeyPolicy": lambda n: users.GetKeyPolicyRequest(),
    "UsersService/ListSecrets": lambda n: users.ListSecretsRequest(),
    "UsersService/WhoAmI": lambda n: users.WhoAmIRequest(),
    "FilesService/ListFiles": lambda n: files.ListFilesRequest(),
    "ModelsService/ListFetches": lambda n: models.ListFetchesRequest(),
    "ModelsService/ListModels": lambda n: models.ListModelsRequest(),
    "JobsService/ListJobs": lambda n: jobs.ListJobsRequest(limit=100, metadata={"team": "acme"}),
    "WebhooksService/ListWebhooks": lambda n: jobs.ListWebhooksRequest(),
    "JobsService/ListRuntimes": lambda n: jobs.ListRuntimesRequest(),
    "InferenceService/ListEngines": lambda n: inference.ListEnginesRequest(),
    "InferenceService/ListServings": lambda n: inference.ListServingsRequest(),
    "InferenceService/ListPrefetches": lambda n: inference.ListPrefetchesRequest(),
    "InferenceService/ListEngineTrainings": lambda n: inference.ListEngineTrainingsRequest(),
    "FeedsService/ListFeeds": lambda n: feeds.ListFeedsRequest(),
    "RbacService/ListAuditEvents": lambda n: rbac.ListAuditEventsRequest(limit=100),
    "RbacService/VerifyAuditEvents": lambda n: rbac.VerifyAuditEventsRequest(),
    "RbacService/ListAuditCheckpoints": lambda n: rbac.ListAuditCheckpointsRequest(),
    "AuditDestinationsService/ListAuditDestinations": lambda n: rbac.ListAuditDestinationsRequest(),
    "RbacService/GetAuditRetention": lambda n: rbac.GetAuditRetentionRequest(),
    "RbacService/ListRoles": lambda n: rbac.ListRolesRequest(),
    "CertificatesService/ListCertificates": lambda n: certificates.ListCertificatesRequest(),
    "ExternalKeysService/ListExternalKeys": lambda n: external_keys.ListExternalKeysRequest(),
    "GroupsService/ListGroups": lambda n: groups.ListGroupsRequest(),
    "IdentityProvidersService/ListIdentityProviders": lambda n: (
        sign_in.ListIdentityProvidersRequest()
    ),
    "SignInPoliciesService/GetSignInPolicy": lambda n: sign_in.GetSignInPolicyRequest(),
    "SignInPoliciesService/ExplainAccess": lambda n: sign_in.ExplainAccessRequest(),
    "ErasuresService/ListErasures": lambda n: erasures.ListErasuresRequest(),
    "ExportsService/ListExports": lambda n: exports.ListExportsRequest(),
    "MailDomainsService/ListMailDomains": lambda n: mail_domains.ListMailDomainsRequest(),
    "InvitesService/ListInvites": lambda n: sign_in.ListInvitesRequest(),
    "DirectoryService/GetDirectory": lambda n: directory.GetDirectoryRequest(),
    "DirectoryService/FindPeople": lambda n: directory.FindPeopleRequest(count=100),
    "DirectoryService/FindDirectoryGroups": lambda n: directory.FindDirectoryGroupsRequest(
        count=100
    ),
    "WorkloadIdentityService/ListWorkloadProviders": lambda n: (
        workloads.ListWorkloadProvidersRequest()
    ),
    "RbacService/Check": lambda n: rbac.CheckRequest(permission="files.read", resource=n.file),
    "ClustersService/ListAssignments": lambda n: clusters.ListAssignmentsRequest(),
    "UsageService/QueryUsage": lambda n: usage.QueryUsageRequest(
        start_at=int(time.time()) - 3600,
        group_by=["project_id", "key_id", "user_id", "model"],
        project_ids=[n.project],
    ),
    "TuningService/GetCapabilities": lambda n: tuning.GetCapabilitiesRequest(),
    "TuningService/ListSessions": lambda n: tuning.ListSessionsRequest(),
    "SeatsService/ListSeats": lambda n: seats.ListSeatsRequest(limit=100),
    "TuningService/GetQueue": lambda n: tuning.GetQueueRequest(),
    "TuningService/SearchSessions": lambda n: tuning.SearchSessionsRequest(),
    "TuningService/ListRuns": lambda n: tuning.ListRunsRequest(),
    "TuningService/ListCheckpoints": lambda n: tuning.ListCheckpointsRequest(),
}
# What the owner sees of its own by the same requests.
SEEN = {
    "UsersService/ListProjects": "project",
    "UsersService/ListApiKeys": "key",
    "UsersService/ListSecrets": "secret",
    "FilesService/ListFiles": "file",
    "ModelsService/ListFetches": "fetch",
    "ModelsService/ListModels": "model",
    "InferenceService/ListServings": "model",
    "InferenceService/ListPrefetches": "model",
    "InferenceService/ListEngineTrainings": "training",
    "FeedsService/ListFeeds": "model",
    "JobsService/ListJobs": "job",
    "WebhooksService/ListWebhooks": "webhook",
    "ClustersService/ListAssignments": "project",
    "UsageService/QueryUsage": "key",
    "TuningService/ListSessions": "session",
    "TuningService/SearchSessions": "session",
    "TuningService/ListRuns": "run",
    "TuningService/ListCheckpoints": "weights",
}
# What belongs to the platform: anyone may look at clusters, its administrator alone changes them.
PLATFORM: dict[str, Message] = {
    "UsersService/CreateOrganization": users.CreateOrganizationRequest(title="Evil"),
    "ErasuresService/UndeleteOrganization": erasures.UndeleteOrganizationRequest(
        organization_id="x"
    ),
    "ErasuresService/HoldOrganization": erasures.HoldOrganizationRequest(organization_id="x"),
    "ErasuresService/ReleaseOrganization": erasures.ReleaseOrganizationRequest(organization_id="x"),
    "UsersService/PutOrganizationQuota": users.PutQuotaRequest(name="jobs", bound=1),
    "InferenceService/PutStack": inference.PutStackRequest(
        name="evil", cluster_id="x", url="http://evil.example"
    ),
    "InferenceService/ListStacks": inference.ListStacksRequest(),
    "InferenceService/DeleteStack": inference.DeleteStackRequest(name="x"),
    "InferenceService/AdoptModel": inference.AdoptModelRequest(stack="x", id="evil"),
    "ClustersService/RegisterCluster": clusters.RegisterClusterRequest(name="evil"),
    "ClustersService/UpdateCluster": clusters.UpdateClusterRequest(cluster_id="x"),
    "ClustersService/RekeyCluster": clusters.RekeyClusterRequest(cluster_id="x"),
    "ClustersService/UnregisterCluster": clusters.UnregisterClusterRequest(cluster_id="x"),
    "ClustersService/GetInventory": clusters.GetInventoryRequest(cluster_id="x"),
    "ClustersService/PutAssignment": clusters.PutAssignmentRequest(),
    "ClustersService/DeleteAssignment": clusters.DeleteAssignmentRequest(cluster_id="x"),
    "ClustersService/GetQuota": clusters.GetQuotaRequest(cluster_id="x"),
    "ClustersService/PutQuota": clusters.PutQuotaRequest(cluster_id="x"),
}
OPEN = {"ClustersService/ListClusters", "ClustersService/GetCluster"}
# What these make is the caller's own, whatever others have: tests of their own below.
MAKES = {
    "UsersService/CreateProject", "UsersService/PutSecret", "FilesService/CreateUpload",
    "ModelsService/CreateImport", "ModelsService/CreateFetch", "SessionsService/CreateAccess",
    "WebhooksService/CreateWebhook", "GroupsService/CreateGroup",
    "KeyPoliciesService/PutKeyPolicy", "SignInPoliciesService/PutSignInPolicy",
    "InvitesService/CreateInvite", "MailDomainsService/CreateMailDomain",
    "IdentityProvidersService/CreateIdentityProvider",
    "CertificatesService/CreateCertificate", "ExternalKeysService/CreateExternalKey",
    "RbacService/PutAuditRetention",
    "AuditDestinationsService/CreateAuditDestination",
    "DirectoryService/PutDirectory",
    "DirectoryService/DeleteDirectory", "DirectoryService/CreatePerson",
    "DirectoryService/CreateDirectoryGroup",
    "WorkloadIdentityService/CreateWorkloadProvider",
    "ExportsService/CreateExport", "ExportsService/CreatePersonalExport",
    "TuningService/CreateSession",
}  # fmt: skip

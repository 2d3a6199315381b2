"""Requests that name what a project has."""

from collections.abc import Callable

from google.protobuf.message import Message
from tests.support.factories.job_documents import document
from tests.support.factories.tenant_rpcs.names import Names
from tests.support.factories.tenant_rpcs.of_tuning import OF_TUNING

from windlass.api.files.v1 import files_pb2 as files
from windlass.api.inference.v1 import feeds_pb2 as feeds
from windlass.api.inference.v1 import inference_pb2 as inference
from windlass.api.jobs.v1 import jobs_pb2 as jobs
from windlass.api.models.v1 import models_pb2 as models
from windlass.api.users.v1 import elevations_pb2 as elevations
from windlass.api.users.v1 import erasures_pb2 as erasures
from windlass.api.users.v1 import groups_pb2 as groups
from windlass.api.users.v1 import model_policies_pb2 as policies
from windlass.api.users.v1 import roles_pb2 as roles
from windlass.api.users.v1 import users_pb2 as users
from windlass.api.users.v1 import workload_identity_pb2 as workloads

# For each RPC the requests that name somebody else's.
OF_A_PROJECT: dict[str, Callable[[Names], list[Message]]] = {
    "UsersService/GetProject": lambda n: [users.GetProjectRequest(project_id=n.project)],
    "ErasuresService/DeleteProject": lambda n: [
        erasures.DeleteProjectRequest(project_id=n.project, title="Main")
    ],
    "ErasuresService/UndeleteProject": lambda n: [
        erasures.UndeleteProjectRequest(project_id=n.project)
    ],
    "UsersService/ArchiveProject": lambda n: [users.ArchiveProjectRequest(project_id=n.project)],
    "UsersService/UpdateProject": lambda n: [
        users.UpdateProjectRequest(project_id=n.project, title="mine")
    ],
    "UsersService/PutMember": lambda n: [
        users.PutMemberRequest(project_id=n.project, user_id="eve", role=users.ROLE_PROJECT_OWNER)
    ],
    "UsersService/ListMembers": lambda n: [users.ListMembersRequest(project_id=n.project)],
    "UsersService/RemoveMember": lambda n: [
        users.RemoveMemberRequest(project_id=n.project, user_id=n.user)
    ],
    "UsersService/ListAffectedKeys": lambda n: [
        users.ListAffectedKeysRequest(project_id=n.project, user_id=n.user)
    ],
    "UsersService/CreateApiKey": lambda n: [
        users.CreateApiKeyRequest(project_id=n.project, name="x", role=users.ROLE_PROJECT_MEMBER)
    ],
    "UsersService/ListApiKeys": lambda n: [users.ListApiKeysRequest(project_id=n.project)],
    "UsersService/GetApiKey": lambda n: [users.GetApiKeyRequest(key_id=n.key)],
    "UsersService/RevokeApiKey": lambda n: [users.RevokeApiKeyRequest(key_id=n.key)],
    "UsersService/RotateApiKey": lambda n: [users.RotateApiKeyRequest(key_id=n.key)],
    "UsersService/UpdateApiKey": lambda n: [users.UpdateApiKeyRequest(key_id=n.key, name="mine")],
    "RolesService/CreateRole": lambda n: [
        roles.CreateRoleRequest(project_id=n.project, name="x", permissions=["files.read"])
    ],
    "RolesService/ListCustomRoles": lambda n: [roles.ListCustomRolesRequest(project_id=n.project)],
    "RolesService/ListRoleAssignments": lambda n: [
        roles.ListRoleAssignmentsRequest(project_id=n.project)
    ],
    "RolesService/ListHolders": lambda n: [
        roles.ListHoldersRequest(project_id=n.project, permission="files.read")
    ],
    "RolesService/GetRole": lambda n: [roles.GetRoleRequest(role_id=n.role)],
    "RolesService/UpdateRole": lambda n: [roles.UpdateRoleRequest(role_id=n.role, name="mine")],
    "RolesService/DeleteRole": lambda n: [roles.DeleteRoleRequest(role_id=n.role)],
    "RolesService/PreviewRole": lambda n: [
        roles.PreviewRoleRequest(update=roles.UpdateRoleRequest(role_id=n.role, name="mine")),
        roles.PreviewRoleRequest(delete=roles.DeleteRoleRequest(role_id=n.role)),
        roles.PreviewRoleRequest(
            assign=roles.AssignRoleRequest(role_id=n.role, project_id=n.project, user_id=n.user)
        ),
        roles.PreviewRoleRequest(
            unassign=roles.UnassignRoleRequest(
                role_id=n.role, project_id=n.project, group_id=n.group
            )
        ),
    ],
    "RolesService/AssignRole": lambda n: [
        roles.AssignRoleRequest(role_id=n.role, user_id=n.user),
        roles.AssignRoleRequest(role_id=n.role, project_id=n.project, user_id=n.user),
    ],
    "RolesService/UnassignRole": lambda n: [
        roles.UnassignRoleRequest(role_id=n.role, user_id=n.user),
        roles.UnassignRoleRequest(role_id=n.role, project_id=n.project, user_id=n.user),
    ],
    "ElevationsService/RequestElevation": lambda n: [
        elevations.RequestElevationRequest(
            role_id=n.role, project_id=n.project, reason="x", seconds=60
        ),
        elevations.RequestElevationRequest(role_id=n.role, reason="x", seconds=60),
    ],
    "ElevationsService/GetElevation": lambda n: [
        elevations.GetElevationRequest(elevation_id=n.elevation)
    ],
    "ElevationsService/ListElevations": lambda n: [
        elevations.ListElevationsRequest(project_id=n.project)
    ],
    "ElevationsService/ListRequestableRoles": lambda n: [
        elevations.ListRequestableRolesRequest(project_id=n.project)
    ],
    "ElevationsService/ApproveElevation": lambda n: [
        elevations.DecideElevationRequest(elevation_id=n.elevation)
    ],
    "ElevationsService/DenyElevation": lambda n: [
        elevations.DecideElevationRequest(elevation_id=n.elevation)
    ],
    "ElevationsService/WithdrawElevation": lambda n: [
        elevations.WithdrawElevationRequest(elevation_id=n.elevation)
    ],
    "ElevationsService/EndElevation": lambda n: [
        elevations.EndElevationRequest(elevation_id=n.elevation)
    ],
    "GroupsService/ListProjectGroups": lambda n: [
        groups.ListProjectGroupsRequest(project_id=n.project)
    ],
    "GroupsService/RemoveProjectGroup": lambda n: [
        groups.RemoveProjectGroupRequest(project_id=n.project, group_id=n.group)
    ],
    "ModelPoliciesService/GetModelPolicy": lambda n: [
        policies.GetModelPolicyRequest(project_id=n.project)
    ],
    "WorkloadIdentityService/CreateFederationRule": lambda n: [
        workloads.CreateFederationRuleRequest(
            identity_provider_id=n.workload_provider,
            project_id=n.project,
            service_account_id=n.account,
            attribute_matchers='{"sub": "mine"}',
        )
    ],
    "WorkloadIdentityService/GetFederationRule": lambda n: [
        workloads.GetFederationRuleRequest(
            identity_provider_id=n.workload_provider, federation_rule_id=n.rule
        )
    ],
    "WorkloadIdentityService/UpdateFederationRule": lambda n: [
        workloads.UpdateFederationRuleRequest(
            identity_provider_id=n.workload_provider, federation_rule_id=n.rule, name="mine"
        )
    ],
    "WorkloadIdentityService/DeleteFederationRule": lambda n: [
        workloads.DeleteFederationRuleRequest(
            identity_provider_id=n.workload_provider, federation_rule_id=n.rule
        )
    ],
    "UsersService/DeleteSecret": lambda n: [users.DeleteSecretRequest(name=n.secret)],
    "FilesService/CommitFile": lambda n: [files.CommitFileRequest(upload_id=n.upload, bytes=1)],
    "FilesService/AbortUpload": lambda n: [files.AbortUploadRequest(upload_id=n.upload)],
    "FilesService/GetFile": lambda n: [files.GetFileRequest(file_id=n.file)],
    "FilesService/GetFileObject": lambda n: [files.GetFileObjectRequest(file_id=n.file)],
    "FilesService/DeleteFile": lambda n: [files.DeleteFileRequest(file_id=n.file)],
    "ModelsService/CompleteImport": lambda n: [models.CompleteImportRequest(import_id=n.import_)],
    "ModelsService/GetFetch": lambda n: [models.GetFetchRequest(id=n.fetch)],
    "ModelsService/CancelFetch": lambda n: [models.CancelFetchRequest(id=n.fetch)],
    "ModelsService/GetModel": lambda n: [models.GetModelRequest(id=n.model)],
    "ModelsService/DeleteModel": lambda n: [models.DeleteModelRequest(id=n.model)],
    "InferenceService/PutServing": lambda n: [
        inference.PutServingRequest(model=n.model, min_replicas=1)
    ],
    "InferenceService/CreateEngineTraining": lambda n: [
        inference.CreateEngineTrainingRequest(
            model=n.model,
            samples=[inference.TrainingSample(context_ids=[1], continuation_ids=[2])],
            optimizer="sgd",
            epochs=1,
            batch=1,
            rank=1,
            max_seconds=1,
        )
    ],
    "FeedsService/PutFeed": lambda n: [
        feeds.PutFeedRequest(
            model=n.model,
            key_ids=[n.key],
            grader=b'{"type": "string_check", "name": "g", "input": "a", "reference": "a", '
            b'"operation": "eq"}',
            hourly=1,
            batch=1,
            optimizer="sgd",
        )
    ],
    "FeedsService/GetFeed": lambda n: [feeds.GetFeedRequest(model=n.model)],
    "FeedsService/DeleteFeed": lambda n: [feeds.DeleteFeedRequest(model=n.model)],
    "InferenceService/CreateEngineCheckpoint": lambda n: [
        inference.CreateEngineCheckpointRequest(model=n.model, suffix="x")
    ],
    "InferenceService/GetEngineTraining": lambda n: [
        inference.GetEngineTrainingRequest(id=n.training)
    ],
    "InferenceService/CancelEngineTraining": lambda n: [
        inference.CancelEngineTrainingRequest(id=n.training)
    ],
    "InferenceService/WatchEngineTraining": lambda n: [
        inference.WatchEngineTrainingRequest(id=n.training)
    ],
    "InferenceService/PutPrefetch": lambda n: [inference.PutPrefetchRequest(model=n.model)],
    "InferenceService/GetServing": lambda n: [inference.GetServingRequest(model=n.model)],
    "InferenceService/DeleteServing": lambda n: [inference.DeleteServingRequest(model=n.model)],
    "JobsService/CreateJob": lambda n: [
        jobs.CreateJobRequest(document=document(model="shared", training_file=n.file))
    ],
    "JobsService/CheckJob": lambda n: [
        jobs.CheckJobRequest(document=document(model="shared", training_file=n.file))
    ],
    "JobsService/GetJob": lambda n: [jobs.GetJobRequest(job_id=n.job)],
    "JobsService/CancelJob": lambda n: [jobs.CancelJobRequest(job_id=n.job)],
    "JobsService/PauseJob": lambda n: [jobs.PauseJobRequest(job_id=n.job)],
    "JobsService/ResumeJob": lambda n: [jobs.ResumeJobRequest(job_id=n.job)],
    "JobsService/ExplainJob": lambda n: [jobs.ExplainJobRequest(job_id=n.job)],
    "JobsService/ListEvents": lambda n: [jobs.ListEventsRequest(job_id=n.job)],
    "JobsService/WatchEvents": lambda n: [jobs.WatchEventsRequest(job_id=n.job)],
    "JobsService/ListCheckpoints": lambda n: [jobs.ListCheckpointsRequest(job_id=n.job)],
    "JobsService/ReadLog": lambda n: [jobs.ReadLogRequest(job_id=n.job)],
    "JobsService/ListJobs": lambda n: [jobs.ListJobsRequest(after=n.job)],
    "WebhooksService/ListWebhooks": lambda n: [jobs.ListWebhooksRequest(after=n.webhook)],
    "WebhooksService/GetWebhook": lambda n: [jobs.GetWebhookRequest(webhook_id=n.webhook)],
    "WebhooksService/DeleteWebhook": lambda n: [jobs.DeleteWebhookRequest(webhook_id=n.webhook)],
    "WebhooksService/TestWebhook": lambda n: [
        jobs.TestWebhookRequest(webhook_id=n.webhook, event_type="fine_tuning.job.failed")
    ],
    **OF_TUNING,
}

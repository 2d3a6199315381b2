"""Assignments of clusters to projects, and what the cluster's agent is told of them."""

import asyncio
from typing import Any

import grpc
import pytest
from tests.support.agents.cluster_agent import AgentClient, refused
from tests.support.services.clusters import ControlPlane, job

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.clusters.domain import names

Code = grpc.StatusCode


class Operator:
    """The platform's administrator, at one cluster."""

    def __init__(self, plane: ControlPlane, stub: rpc.ClustersServiceAsyncStub, cluster_id: str):
        self.plane, self.stub, self.cluster_id = plane, stub, cluster_id

    async def assign(self, project: users_pb2.Project | str, **fields: Any) -> pb.Assignment:
        project_id = project if isinstance(project, str) else project.id
        wanted = pb.Assignment(cluster_id=self.cluster_id, project_id=project_id, **fields)
        request = pb.PutAssignmentRequest(assignment=wanted)
        return await self.stub.PutAssignment(request, **self.plane.operator)

    async def unassign(self, project: users_pb2.Project) -> None:
        request = pb.DeleteAssignmentRequest(cluster_id=self.cluster_id, project_id=project.id)
        await self.stub.DeleteAssignment(request, **self.plane.operator)

    async def all(self, **fields: Any) -> list[pb.Assignment]:
        request = pb.ListAssignmentsRequest(cluster_id=self.cluster_id, **fields)
        return list((await self.stub.ListAssignments(request, **self.plane.operator)).assignments)


@pytest.fixture
def operator(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, enrolled: pb.EnrollResponse
) -> Operator:
    return Operator(plane, operators, enrolled.cluster_id)


@pytest.fixture
async def project(plane: ControlPlane) -> users_pb2.Project:
    return await plane.project()


async def confirm(agent: AgentClient, revision: int, **errors: str) -> None:
    await agent.observe(status=pb.SpecStatus(revision=revision, assignment_errors=errors))


async def test_an_assignment_goes_down_and_its_state_comes_up(
    operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    first = await agent.watch()
    assert first.spec.cluster_id == operator.cluster_id
    assert not first.spec.assignments
    assert first.suspend_seconds == 60
    await agent.observe(snapshot=True)
    made = await operator.assign(
        project, priority_class="high", price_micros=3_500_000, node_selector={"pool": "a100"}
    )
    assert made.organization_id == project.organization_id
    assert made.namespace == names.derived_namespace(project.id)
    assert (made.ready, bool(made.message), made.removing) == (False, True, False)
    spec = (await agent.next()).spec
    (told,) = spec.assignments
    assert (told.project_id, told.namespace) == (project.id, made.namespace)
    assert dict(told.node_selector) == {"pool": "a100"}
    await confirm(agent, spec.revision - 1)
    assert not (await operator.all())[0].ready, "that was of an older spec"
    await confirm(agent, spec.revision)
    (ready,) = await operator.all()
    assert (ready.ready, ready.message) == (True, "")
    await confirm(agent, spec.revision, **{project.id: "The namespace is somebody else's."})
    (broken,) = await operator.all()
    assert (broken.ready, broken.message) == (False, "The namespace is somebody else's.")
    await confirm(agent, spec.revision + 1000)
    assert not (await operator.all())[0].ready, "nobody knows such a spec yet"


async def test_only_what_changed_the_spec_sends_it_again(
    plane: ControlPlane, operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    await agent.watch()
    await operator.assign(project)
    assert (await agent.next()).HasField("spec")
    await plane.internal.PutWorkload(job("job-1", operator.cluster_id))
    delta = await agent.next()
    assert [workload.id for workload in delta.workloads] == ["job-1"]
    assert not delta.HasField("spec")
    agent.call.cancel()
    assert len((await agent.watch()).spec.assignments) == 1


async def test_a_namespace_is_one_projects(
    plane: ControlPlane, operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    other = await plane.project("Other")
    await operator.assign(project, namespace="team-a")
    assert (await refused(operator.assign(other, namespace="team-a")))[0] is Code.ALREADY_EXISTS
    await operator.assign(other, namespace="team-b")
    fixed = (Code.FAILED_PRECONDITION, "namespace_fixed")
    assert await refused(operator.assign(other, namespace="team-c")) == fixed
    again = await operator.assign(other, price_micros=1)
    assert (again.namespace, again.price_micros) == ("team-b", 1)
    await agent.watch()
    await agent.observe(snapshot=True)
    await operator.unassign(project)
    leaving = await refused(operator.assign(other, namespace="team-a"))
    assert leaving[0] is Code.FAILED_PRECONDITION
    third = await plane.project("Third")
    assert (await refused(operator.assign(third, namespace="team-a")))[0] is Code.ALREADY_EXISTS
    spec = (await agent.watch()).spec
    await confirm(agent, spec.revision)
    assert (await operator.assign(third, namespace="team-a")).namespace == "team-a"


async def test_two_at_once_do_not_share_a_namespace(
    plane: ControlPlane, operator: Operator
) -> None:
    projects = [await plane.project(f"P{number}") for number in range(4)]
    calls = (operator.assign(one, namespace="team-a") for one in projects)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, pb.Assignment) for answer in answers) == 1
    same = (operator.assign(projects[0]) for _ in range(4))
    await asyncio.gather(*same, return_exceptions=True)
    assert len({one.project_id for one in await operator.all()}) == len(await operator.all())


async def test_what_is_unassigned_stays_until_the_agent_has_cleaned_up(
    operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    await agent.watch()
    await agent.observe(snapshot=True)
    await operator.assign(project)
    old = (await agent.next()).spec.revision
    await operator.unassign(project)
    assert (await refused(operator.unassign(project)))[0] is Code.NOT_FOUND
    spec = (await agent.next()).spec
    assert not spec.assignments
    assert [one.project_id for one in spec.removed] == [project.id]
    (leaving,) = await operator.all()
    assert (leaving.removing, leaving.ready) == (True, False)
    await confirm(agent, old)
    await confirm(agent, spec.revision, **{project.id: "Pods are still there."})
    (leaving,) = await operator.all()
    assert leaving.message == "Pods are still there."
    await confirm(agent, spec.revision)
    assert await operator.all() == []


async def test_one_that_comes_back_is_not_removed(
    operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    await agent.watch()
    await agent.observe(snapshot=True)
    await operator.assign(project)
    await operator.unassign(project)
    await operator.assign(project)
    agent.call.cancel()
    spec = (await agent.watch()).spec
    assert (len(spec.assignments), len(spec.removed)) == (1, 0)
    await confirm(agent, spec.revision)
    assert [one.ready for one in await operator.all()] == [True]


async def test_a_project_leaves_when_its_last_job_has_ended(
    plane: ControlPlane, operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    await agent.watch()
    made = await operator.assign(project)
    await plane.internal.PutWorkload(job("job-1", operator.cluster_id, namespace=made.namespace))
    await operator.unassign(project)
    agent.call.cancel()
    spec = (await agent.watch()).spec
    assert (list(spec.assignments), list(spec.removed)) == ([], [])
    (draining,) = await operator.all()
    assert (draining.removing, draining.ready) == (True, False)
    done = pb.WorkloadStatus(workload_id="job-1", generation=1, phase=pb.PHASE_SUCCEEDED)
    await agent.report(done)
    delta = await agent.next()
    assert [one.project_id for one in delta.spec.removed] == [project.id]


async def test_what_operators_may_not_say(
    plane: ControlPlane, operator: Operator, project: users_pb2.Project
) -> None:
    for fields in (
        {"namespace": "Team"},
        {"namespace": "a" * 64},
        {"namespace": "kube-system"},
        {"namespace": "kueue-system"},
        {"namespace": "default"},
        {"namespace": "windlass-agent"},
        {"namespace": "../x"},
        {"cluster_queue": "Q"},
        {"cluster_queue": "q" * 64},
        {"local_queue": "q"},
        {"priority_class": "a b"},
        {"price_micros": -1},
        {"node_selector": {"a b": "c"}},
        {"node_selector": {"a": "c d"}},
        {"node_selector": {f"k{number}": "v" for number in range(40)}},
    ):
        code, _ = await refused(operator.assign(project, **fields))
        assert code is Code.INVALID_ARGUMENT, fields
    assert (await refused(operator.assign("proj_none")))[0] is Code.NOT_FOUND
    assert (await refused(operator.assign("proj_\x00")))[0] is Code.INVALID_ARGUMENT
    elsewhere = Operator(plane, operator.stub, "cluster-none")
    assert (await refused(elsewhere.assign(project)))[0] is Code.NOT_FOUND
    assert await operator.all() == []


async def test_a_queue_must_be_there_once_somebody_has_looked(
    operator: Operator, agent: AgentClient, project: users_pb2.Project
) -> None:
    assert (await operator.assign(project, cluster_queue="unseen")).local_queue == "unseen"
    await agent.watch()
    queue = pb.ClusterQueue(name="team-a")
    await agent.observe(
        pb.InventoryItem(key="cluster_queue/team-a", cluster_queue=queue), snapshot=True
    )
    missing = (Code.INVALID_ARGUMENT, "queue_not_found")
    assert await refused(operator.assign(project, cluster_queue="team-b")) == missing
    made = await operator.assign(project, cluster_queue="team-a", local_queue="main")
    assert (made.cluster_queue, made.local_queue) == ("team-a", "main")


async def test_an_archived_project_gets_nothing(
    plane: ControlPlane, operator: Operator, channel: grpc.aio.Channel
) -> None:
    project = await plane.project()
    owner = plane.owner(project.organization_id)
    users = users_pb2_grpc.UsersServiceStub(channel)
    await users.ArchiveProject(users_pb2.ArchiveProjectRequest(project_id=project.id), **owner)
    assert (await refused(operator.assign(project)))[0] is Code.FAILED_PRECONDITION


async def test_a_machine_is_assigned_without_a_queue_and_is_ready_at_once(
    operator: Operator, operators: rpc.ClustersServiceAsyncStub
) -> None:
    project = await operator.plane.project()
    machine = (await operator.plane.register("machine", executor="process")).cluster
    wanted = pb.Assignment(cluster_id=machine.id, project_id=project.id)
    asked = pb.PutAssignmentRequest(assignment=wanted)
    made = await operators.PutAssignment(asked, **operator.plane.operator)
    assert made.ready
    asked.assignment.cluster_queue = "team-a"
    refusal = refused(operators.PutAssignment(asked, **operator.plane.operator))
    assert await refusal == (Code.FAILED_PRECONDITION, "not_kubernetes")
    await operators.DeleteAssignment(
        pb.DeleteAssignmentRequest(cluster_id=machine.id, project_id=project.id),
        **operator.plane.operator,
    )
    listed = pb.ListAssignmentsRequest(cluster_id=machine.id)
    assert not (await operators.ListAssignments(listed, **operator.plane.operator)).assignments


async def test_a_member_sees_its_own_assignments_alone(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    operator: Operator,
    project: users_pb2.Project,
) -> None:
    other = await plane.project("Other")
    await operator.assign(project)
    await operator.assign(other)

    async def sees(
        caller: users_pb2.Project, *, project_id: str = "", cluster_id: str = ""
    ) -> list[str]:
        request = pb.ListAssignmentsRequest(project_id=project_id, cluster_id=cluster_id)
        answer = await operators.ListAssignments(request, **plane.member(caller))
        return [one.project_id for one in answer.assignments]

    assert await sees(project) == [project.id]
    assert await sees(other) == [other.id]
    assert await sees(project, project_id=other.id) == []
    assert await sees(project, cluster_id=operator.cluster_id) == [project.id]
    assert await sees(project, cluster_id="cluster-none") == []
    for call in (
        operators.PutAssignment(pb.PutAssignmentRequest(), **plane.member(project)),
        operators.DeleteAssignment(
            pb.DeleteAssignmentRequest(cluster_id=operator.cluster_id, project_id=project.id),
            **plane.member(project),
        ),
        operators.ListAssignments(pb.ListAssignmentsRequest(), **plane.tenant(permissions=())),
    ):
        assert (await refused(call))[0] is Code.PERMISSION_DENIED
    assert len(await operator.all()) == 2


async def test_placement_hears_of_all_that_are_in_force(
    plane: ControlPlane, operator: Operator, project: users_pb2.Project
) -> None:
    other = await plane.project("Other")
    await operator.assign(project, price_micros=7)
    await operator.assign(other)
    await operator.unassign(other)
    answer = await plane.capacity()
    assert not answer.clusters, "none lives"
    assert [(one.project_id, one.price_micros) for one in answer.assignments] == [(project.id, 7)]


async def test_nothing_of_an_unregistered_cluster_stays(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    operator: Operator,
    agent: AgentClient,
) -> None:
    await agent.watch()
    await agent.observe(snapshot=True)
    await operator.assign(await plane.project())
    assert (await agent.next()).spec.assignments
    request = pb.UnregisterClusterRequest(cluster_id=operator.cluster_id)
    await operators.UnregisterCluster(request, **plane.operator)
    assert await operator.all() == []
    assert (await refused(agent.next()))[1] == "cluster_unregistered"

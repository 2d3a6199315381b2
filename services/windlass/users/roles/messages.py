"""Roles, those who have them and previews as messages of the contract."""

from windlass.api.users.v1 import roles_pb2 as pb
from windlass.users.roles.domain import CustomRole, RoleAssignment
from windlass.users.roles.effects import Preview

ASKERS = {
    pb.ELEVATION_ASKERS_UNSPECIFIED: "",
    pb.ELEVATION_ASKERS_PROJECT: "project",
    pb.ELEVATION_ASKERS_ORGANIZATION: "organization",
}
_ASKER_NUMBERS = {name: number for number, name in ASKERS.items()}


def role(record: CustomRole) -> pb.CustomRole:
    """A role."""
    return pb.CustomRole(
        id=record.id,
        organization_id=record.organization_id,
        project_id=record.project_id,
        name=record.name,
        description=record.description,
        permissions=record.permissions,
        created_at=record.created_at,
        updated_at=record.updated_at,
        elevation=pb.ElevationRules(
            askers=_ASKER_NUMBERS[record.elevation_askers],
            longest_seconds=record.elevation_seconds,
            approvals=record.elevation_approvals,
        ),
    )


def assignment(given: RoleAssignment, of: CustomRole) -> pb.RoleAssignment:
    """A role that was given."""
    return pb.RoleAssignment(
        role=role(of),
        project_id=given.project_id,
        user_id=given.user_id,
        group_id=given.group_id,
        ends_at=given.ends_at,
        created_at=given.created_at,
        assigned_by=given.assigned_by,
    )


def preview(found: Preview) -> pb.PreviewRoleResponse:
    """A page of who and which keys would gain or lose."""
    return pb.PreviewRoleResponse(
        holders=[
            pb.RoleEffect(
                user_id=one.user_id,
                by=[
                    pb.RoleSource(
                        group_id=grant.group_id, project_id=grant.project_id, ends_at=grant.ends_at
                    )
                    for grant in one.by
                ],
                places=[
                    pb.PlaceEffect(
                        project_id=place, gains=sorted(by.gains), losses=sorted(by.losses)
                    )
                    for place, by in one.places
                ],
            )
            for one in found.holders
        ],
        has_more=found.has_more,
        keys=[
            pb.KeyEffect(
                key_id=one.key.id,
                name=one.key.name,
                redacted=one.key.redacted,
                user_id=one.key.user_id,
                project_id=one.key.project_id,
                gains=sorted(one.difference.gains),
                losses=sorted(one.difference.losses),
                ends=one.ends,
            )
            for one in found.keys
        ],
        has_more_keys=found.has_more_keys,
    )

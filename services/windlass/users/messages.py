"""Domain records of users as messages of the contract."""

from windlass.api.users.v1 import users_pb2 as pb
from windlass.users.contacts import Contact, address_of
from windlass.users.domain import (
    CREDENTIAL_NUMBERS,
    KIND_NUMBERS,
    ROLE_NUMBERS,
    ApiKey,
    Member,
    Organization,
    Project,
    Secret,
)


def organization(record: Organization) -> pb.Organization:
    """An organization."""
    return pb.Organization(id=record.id, title=record.title, created_at=record.created_at)


def project(record: Project) -> pb.Project:
    """A project."""
    return pb.Project(
        id=record.id,
        organization_id=record.organization_id,
        title=record.title,
        created_at=record.created_at,
        archived_at=record.archived_at,
        is_default=record.is_default,
        external_key_id=record.external_key_id,
        geography=record.geography,
        keeps_answers=record.keeps_answers,
    )


def member(record: Member, known: Contact) -> pb.Member:
    """A member, with what is known of a person."""
    return pb.Member(
        organization_id=record.organization_id,
        project_id=record.project_id,
        user_id=record.user_id,
        role=ROLE_NUMBERS[record.role],
        created_at=record.created_at,
        kind=KIND_NUMBERS[record.kind],
        title=record.title,
        email=address_of(record, known),
        name=known.name,
    )


def api_key(record: ApiKey) -> pb.ApiKey:
    """An API key, redacted."""
    return pb.ApiKey(
        id=record.id,
        name=record.name,
        organization_id=record.organization_id,
        project_id=record.project_id,
        user_id=record.user_id,
        role=ROLE_NUMBERS.get(record.role, pb.ROLE_UNSPECIFIED),
        redacted=record.redacted,
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        last_used_at=record.last_used_at,
        made_by=record.made_by,
        parent_key_id=record.parent_key_id,
        rests_on=record.rests_on,
        scopes=record.scopes,
        networks=record.networks,
        models=record.models,
        tags={name: value for name, _, value in (one.partition("=") for one in record.tags)},
        last_used_address=record.last_used_address,
        rotated_at=record.rotated_at,
        previous_until=record.previous_until,
        kind=CREDENTIAL_NUMBERS[record.kind],
    )


def affected_key(record: ApiKey, becomes: str | None) -> pb.AffectedKey:
    """An API key and the role that it would have, if any."""
    number = ROLE_NUMBERS[becomes] if becomes else pb.ROLE_UNSPECIFIED
    return pb.AffectedKey(key=api_key(record), becomes=number)


def secret(record: Secret) -> pb.Secret:
    """A secret, without its value."""
    return pb.Secret(
        name=record.name,
        project_id=record.project_id,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )

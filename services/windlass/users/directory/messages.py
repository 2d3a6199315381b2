"""Records of directories as messages of the contract, and what messages say as records."""

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.api.users.v1 import users_pb2
from windlass.users.directory.domain import NAME_PARTS, Email, Person, Profile
from windlass.users.directory.settings import DirectorySettings
from windlass.users.domain import ROLE_NUMBERS
from windlass.users.groups.store import MemberGroup


def directory(settings: DirectorySettings | None) -> pb.Directory:
    """The settings of a directory, or that there is none."""
    if settings is None:
        return pb.Directory()
    return pb.Directory(
        enabled=True,
        role=ROLE_NUMBERS[settings.role] if settings.role else users_pb2.ROLE_UNSPECIFIED,
        created_at=settings.created_at,
        updated_at=settings.updated_at,
    )


def person(record: Person) -> pb.Person:
    """A person."""
    said = record.profile
    profile = pb.PersonProfile(
        user_name=said.user_name,
        external_id=said.external_id,
        display_name=said.display_name,
        emails=[
            pb.PersonEmail(value=one.value, type=one.type, primary=one.primary)
            for one in said.emails
        ],
        active=said.active,
    )
    if said.name:
        profile.name.CopyFrom(pb.PersonName(**said.name))
    return pb.Person(
        id=record.id,
        profile=profile,
        version=record.version,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def profile_of(message: pb.PersonProfile) -> Profile:
    """The profile of a message, within no bounds yet."""
    parts = {part: getattr(message.name, part) for part in NAME_PARTS}
    return Profile(
        message.user_name,
        message.external_id,
        message.display_name,
        {part: text for part, text in parts.items() if text},
        tuple(
            Email(one.value, one.type, one.primary if one.HasField("primary") else None)
            for one in message.emails
        ),
        message.active if message.HasField("active") else None,
    )


def group(record: MemberGroup) -> pb.DirectoryGroup:
    """A group."""
    return pb.DirectoryGroup(
        id=record.id,
        name=record.name,
        external_id=record.external_id,
        version=record.version,
        created_at=record.created_at,
        updated_at=record.updated_at or record.created_at,
    )

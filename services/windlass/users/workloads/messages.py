"""Records of workload identity as messages of the contract."""

import orjson

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.users.workloads.domain import FederationRule, WorkloadIssuer


def provider(record: WorkloadIssuer) -> pb.WorkloadProvider:
    """An identity provider."""
    return pb.WorkloadProvider(
        id=record.id,
        organization_id=record.organization_id,
        name=record.name,
        description=record.description,
        issuer=record.issuer,
        audience=record.audience,
        jwks=record.jwks,
        attribute_transformations=[
            pb.AttributeTransformation(attribute=name, expression=text)
            for name, text in record.transformations
        ],
        enabled=record.enabled,
        created_at=record.created_at,
        updated_at=record.updated_at,
        changed_by=record.changed_by,
    )


def rule(record: FederationRule) -> pb.FederationRule:
    """A federation rule."""
    return pb.FederationRule(
        id=record.id,
        identity_provider_id=record.provider_id,
        organization_id=record.organization_id,
        project_id=record.project_id,
        service_account_id=record.service_account_id,
        name=record.name,
        description=record.description,
        attribute_matchers=orjson.dumps(record.matchers).decode(),
        scopes=record.scopes,
        enabled=record.enabled,
        created_at=record.created_at,
        updated_at=record.updated_at,
        changed_by=record.changed_by,
        accepts_bearer=record.accepts_bearer,
    )

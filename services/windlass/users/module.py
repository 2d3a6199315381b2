"""Builds the users service."""

import asyncio
from functools import partial

from windlass.api.clusters.v1 import clusters_pb2_grpc
from windlass.api.users.v1 import (
    certificates_pb2_grpc,
    directory_pb2_grpc,
    elevations_pb2_grpc,
    groups_pb2_grpc,
    model_policies_pb2_grpc,
    networks_pb2_grpc,
    roles_pb2_grpc,
    workload_identity_pb2_grpc,
)
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.db.leases import tolerated
from windlass.core.oidc.issuers import OidcIssuers
from windlass.core.quotas import Quotas
from windlass.residency.rule import require_stores
from windlass.users.allowed_networks.service import AllowedNetworksServicer
from windlass.users.allowed_networks.store import AllowedNetworksStore
from windlass.users.certificates.service import CertificatesServicer
from windlass.users.certificates.store import CertificateStore
from windlass.users.directory.groups import DirectoryGroupStore
from windlass.users.directory.people import PeopleStore
from windlass.users.directory.service import DirectoryServicer
from windlass.users.directory.settings import DirectoryStore
from windlass.users.elevations.service import ElevationsServicer
from windlass.users.elevations.store import ElevationStore
from windlass.users.encryption.assembly import build_encryption
from windlass.users.exporting import module as exporting
from windlass.users.exporting.ends import ExportsEnd
from windlass.users.groups.projects import ProjectGroups
from windlass.users.groups.service import GroupsServicer
from windlass.users.groups.store import GroupStore
from windlass.users.internal import UsersInternalServicer
from windlass.users.keys import module as key_endings
from windlass.users.keys.changes import KeyChanges
from windlass.users.keys.store import KeyStore
from windlass.users.leaving import module as leaving
from windlass.users.leaving.claims import CLAIMS
from windlass.users.mail import module as mail
from windlass.users.membership.store import MemberStore
from windlass.users.model_policies.service import ModelPoliciesServicer
from windlass.users.model_policies.store import ModelPolicies
from windlass.users.ownership.bootstrap import bootstrap
from windlass.users.quotas import TenantQuotas
from windlass.users.roles.ends import end_roles
from windlass.users.roles.service import RolesServicer
from windlass.users.roles.store import RoleStore
from windlass.users.roster import Roster
from windlass.users.service import UsersServicer
from windlass.users.sign_in import module as sign_in
from windlass.users.store import TenantStore
from windlass.users.workloads.authority import RuleAuthority
from windlass.users.workloads.bearers import BearerTokens
from windlass.users.workloads.clusters import IssuingClusters
from windlass.users.workloads.exchange import TokenExchange
from windlass.users.workloads.exchange_service import TokenExchangeServicer
from windlass.users.workloads.giving import TokenGiver, forget_tokens
from windlass.users.workloads.judging import TokenJudge
from windlass.users.workloads.service import WorkloadIdentityServicer
from windlass.users.workloads.store import FederationRuleStore, WorkloadProviderStore
from windlass.users.workloads.verification import SubjectTokens

SWEEP_SECONDS = 3600


async def build(app: App) -> None:
    """Constructs and registers users."""
    settings = app.settings
    quotas = Quotas(settings.quotas)
    tenants, keys = (
        TenantStore(app.database, quotas),
        KeyStore(app.database, fresh_seconds=settings.sign_in.fresh_seconds),
    )
    for geography in await tenants.geographies():
        # Rather than keep on writing what belongs elsewhere.
        require_stores(geography, settings.residency.stores)
    members, key_changes = MemberStore(app.database), KeyChanges(app.database)
    encryption = await build_encryption(app, tenants)
    await bootstrap(
        app.database,
        tenants,
        keys,
        data_dir=settings.data_dir,
        key_prefix=settings.auth.key_prefix,
    )
    app.serve(
        UsersServicer(
            tenants,
            members,
            keys,
            key_changes,
            encryption.secrets,
            encryption.keys,
            TenantQuotas(app.database, tenants, quotas),
            app.wake,
            key_prefix=settings.auth.key_prefix,
            stores=settings.residency.stores,
        ),
        rpc.add_UsersServiceServicer_to_server,
    )
    roles, roster = RoleStore(app.database), Roster(tenants, members)
    outbox = mail.build(app)
    sign_in.build(app, roster, members, outbox)
    leaving.build(app, tenants, ExportsEnd(app.database, app.wake))
    exporting.build(app, CLAIMS)
    app.serve(
        RolesServicer(app.database, roster, roles, app.wake),
        roles_pb2_grpc.add_RolesServiceServicer_to_server,
    )
    app.serve(
        ElevationsServicer(ElevationStore(app.database), roster, app.wake),
        elevations_pb2_grpc.add_ElevationsServiceServicer_to_server,
    )
    app.serve(
        GroupsServicer(GroupStore(app.database), ProjectGroups(app.database), roster, app.wake),
        groups_pb2_grpc.add_GroupsServiceServicer_to_server,
    )
    app.serve(
        ModelPoliciesServicer(ModelPolicies(app.database), roster, app.wake),
        model_policies_pb2_grpc.add_ModelPoliciesServiceServicer_to_server,
    )
    app.serve(
        CertificatesServicer(CertificateStore(app.database), tenants, app.wake),
        certificates_pb2_grpc.add_CertificatesServiceServicer_to_server,
    )
    app.serve(
        AllowedNetworksServicer(AllowedNetworksStore(app.database), app.wake),
        networks_pb2_grpc.add_AllowedNetworksServiceServicer_to_server,
    )
    database = app.database
    app.serve(
        DirectoryServicer(
            DirectoryStore(database), PeopleStore(database), DirectoryGroupStore(database), app.wake
        ),
        directory_pb2_grpc.add_DirectoryServiceServicer_to_server,
    )
    app.background("users.roles", partial(end_roles, roles, app.wake))
    key_endings.build(app, keys, outbox)
    app.serve(
        UsersInternalServicer(tenants, keys, key_changes, encryption, app.wake, app.audit),
        rpc.add_UsersInternalServiceServicer_to_server,
    )
    _serve_workloads(app, members)

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            async with tolerated("users.sweep"):
                await keys.forget_changes()
                await forget_tokens(app.database)
                await outbox.sweep(app.database)

    app.background("users.sweep", sweep)


def _serve_workloads(app: App, members: MemberStore) -> None:
    issuers = OidcIssuers(app.settings.oidc.allowed_networks)
    app.on_stop(issuers.close)
    providers, rules = WorkloadProviderStore(app.database), FederationRuleStore(app.database)
    clusters = IssuingClusters(app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub))
    app.serve(
        WorkloadIdentityServicer(
            providers, rules, clusters, RuleAuthority(app.database, members), issuers, app.wake
        ),
        workload_identity_pb2_grpc.add_WorkloadIdentityServiceServicer_to_server,
    )
    judge, giver = TokenJudge(providers, clusters, SubjectTokens(issuers)), TokenGiver(app.database)
    exchange = TokenExchange(rules, judge, giver, key_prefix=app.settings.auth.key_prefix)
    app.serve(
        TokenExchangeServicer(exchange, BearerTokens(rules, judge, giver), rules, app.audit),
        workload_identity_pb2_grpc.add_TokenExchangeServiceServicer_to_server,
    )

"""Builds sign-in, a part of users."""

import asyncio

from windlass.api.users.v1 import mail_domains_pb2_grpc as domains_rpc
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.db.leases import tolerated
from windlass.core.oidc.issuers import OidcIssuers
from windlass.users.groups.store import GroupStore
from windlass.users.mail.outbox import MailOutbox
from windlass.users.membership.store import MemberStore
from windlass.users.roster import Roster
from windlass.users.sign_in.flows import FlowSeal
from windlass.users.sign_in.invites.service import InvitesServicer
from windlass.users.sign_in.invites.store import InviteStore
from windlass.users.sign_in.issuer_answers import IssuerAnswers
from windlass.users.sign_in.mail_domains.proof import MailDomainProof
from windlass.users.sign_in.mail_domains.records import DnsRecords
from windlass.users.sign_in.mail_domains.service import MailDomainsServicer
from windlass.users.sign_in.mail_domains.store import MailDomainStore
from windlass.users.sign_in.pending import PendingSignIns
from windlass.users.sign_in.people import SignInPeople
from windlass.users.sign_in.policies.explanation import AccessExplanations
from windlass.users.sign_in.policies.service import SignInPoliciesServicer
from windlass.users.sign_in.policies.store import SignInPolicies
from windlass.users.sign_in.providers.service import IdentityProvidersServicer
from windlass.users.sign_in.providers.store import ProviderStore
from windlass.users.sign_in.questions import Questions
from windlass.users.sign_in.service import SignInServicer
from windlass.users.sign_in.sessions import SessionStore

SWEEP_SECONDS = 600


def build(app: App, roster: Roster, members: MemberStore, outbox: MailOutbox) -> None:
    """Constructs and registers the servicers of sign-in."""
    database, settings = app.database, app.settings
    issuers = OidcIssuers(settings.oidc.allowed_networks)
    app.on_stop(issuers.close)
    answers = IssuerAnswers(issuers)
    providers = ProviderStore(database, app.keyring.envelope("identity providers"))
    invites, pending = InviteStore(database, outbox), PendingSignIns(database)
    questions = Questions(database)
    domains = MailDomainStore(database)
    servers = [one.rpartition("#") for one in settings.sign_in.dns_servers]
    proof = MailDomainProof(domains, DnsRecords([(host, int(port)) for host, _, port in servers]))
    sessions = SessionStore(
        database,
        settings.sign_in,
        mac_key=app.keyring.derive("refresh tokens"),
        key_prefix=settings.auth.key_prefix,
    )
    app.serve(
        IdentityProvidersServicer(providers, GroupStore(database), issuers, answers),
        rpc.add_IdentityProvidersServiceServicer_to_server,
    )
    app.serve(
        MailDomainsServicer(domains, proof), domains_rpc.add_MailDomainsServiceServicer_to_server
    )
    mailed_at = settings.public_url if outbox.enabled else ""
    app.serve(
        InvitesServicer(invites, roster, members, mailed_at=mailed_at),
        rpc.add_InvitesServiceServicer_to_server,
    )
    app.serve(
        SignInServicer(
            providers,
            SignInPeople(database, app.wake),
            invites,
            domains,
            sessions,
            pending,
            questions,
            answers,
            FlowSeal(app.keyring.envelope("sign-in")),
            app.audit,
            app.wake,
        ),
        rpc.add_SignInServiceServicer_to_server,
    )

    app.serve(
        SignInPoliciesServicer(SignInPolicies(database), AccessExplanations(database), app.wake),
        rpc.add_SignInPoliciesServiceServicer_to_server,
    )

    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            async with tolerated("users.sign_in.sweep"):
                await sessions.sweep()
                await pending.sweep()
                await questions.sweep()
                await proof.sweep()
                await invites.sweep()

    app.background("users.sign_in.sweep", sweep)

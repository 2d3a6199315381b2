"""The servicer of sign-in."""

from typing import Any

from google.protobuf.message import Message

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, InvalidArgument
from windlass.core.rpc import auth
from windlass.core.rpc.interceptor import AuditSink
from windlass.users import messages
from windlass.users.domain import KEYS_TOPIC, ApiKey
from windlass.users.sign_in.domain import (
    STATE_LENGTH,
    IdentityProvider,
    IssuerPerson,
    SignedIn,
    refused,
    valid_challenge,
    valid_loopback,
)
from windlass.users.sign_in.flows import AtIssuer, Client, FlowSeal, require_same
from windlass.users.sign_in.invites.store import InviteStore
from windlass.users.sign_in.issuer_answers import IssuerAnswers, require_asked
from windlass.users.sign_in.mail_domains.store import MailDomainStore
from windlass.users.sign_in.pending import (
    DEVICE_SECONDS,
    POLL_SECONDS,
    PendingSignIns,
    read_user_code,
)
from windlass.users.sign_in.people import SignInPeople
from windlass.users.sign_in.providers.store import ProviderStore
from windlass.users.sign_in.questions import PendingQuestion, Questions
from windlass.users.sign_in.sessions import Secrets, SessionStore

# As an event of the audit log has it.
SIGN_IN, SIGN_OUT, ACCEPT_INVITE = "sign_in", "sign_out", "accept_invite"


class SignInServicer(rpc.SignInServiceServicer):
    """SignInService."""

    def __init__(
        self,
        providers: ProviderStore,
        people: SignInPeople,
        invites: InviteStore,
        domains: MailDomainStore,
        sessions: SessionStore,
        pending: PendingSignIns,
        questions: Questions,
        issuers: IssuerAnswers,
        seal: FlowSeal,
        audit: AuditSink,
        wake: Wake,
    ):
        self._providers = providers
        self._people = people
        self._invites = invites
        self._domains = domains
        self._sessions = sessions
        self._issuers = issuers
        self._seal = seal
        self._audit = audit
        self._wake = wake
        self._pending = pending
        self._questions = questions

    async def FindWaysIn(
        self, request: pb.FindWaysInRequest, context: Any
    ) -> pb.FindWaysInResponse:
        """Providers by which somebody may sign in to an organization, or with an invite."""
        organization_id = request.organization_id
        if request.invite_token:
            digest = auth.digest(request.invite_token)
            organization_id = await self._invites.organization_of(digest)
        elif request.email and not organization_id:
            organization_id = await self._domains.organization_of(request.email)
        found = await self._providers.ways_in(organization_id)
        ways = [pb.WayIn(provider_id=one.id, name=one.name) for one in found]
        is_unknown = not (organization_id or request.email)
        asks_address = is_unknown and await self._domains.any_verified()
        return pb.FindWaysInResponse(ways=ways, asks_address=asks_address)

    async def StartSignIn(
        self, request: pb.StartSignInRequest, context: Any
    ) -> pb.StartSignInResponse:
        """The address that the browser goes to, and what it keeps meanwhile."""
        provider = await self._providers.any(request.provider_id)
        client = _client(request.client)
        if client.user_code:
            await self._pending.device(client.user_code)
        flow = AtIssuer(
            provider.id, request.callback, request.invite_token, client, fresh=request.fresh
        )
        url = await self._issuers.authorization_url(
            provider,
            callback=flow.callback,
            state=flow.state,
            nonce=flow.nonce,
            verifier=flow.verifier,
            fresh=flow.fresh,
        )
        return pb.StartSignInResponse(authorization_url=url, flow=self._seal.seal(flow))

    async def FinishSignIn(self, request: pb.FinishSignInRequest, context: Any) -> pb.SignInStep:
        """Takes the issuer's answer: a session, a way back, or a question."""
        flow = self._seal.open(request.flow)
        require_same(request.state, flow.state)
        provider = await self._providers.any(flow.provider_id)
        try:
            person = await self._vouched(request, flow, provider)
            if flow.invite:
                return await self._ask_invited(person, provider, flow)
            found = await self._people.sign_in(person, provider)
        except AppError as error:
            self._refuse(provider, error)
            raise
        if len(found) == 1 and not flow.client.user_code:
            return await self._conclude(found[0], flow.client, request.user_agent)
        choices = {one.organization_id: one.user_id for one in found}
        return pb.SignInStep(
            question=await self._ask(PendingQuestion(person, choices, flow.client))
        )

    async def ConfirmSignIn(self, request: pb.ConfirmSignInRequest, context: Any) -> pb.SignInStep:
        """Takes the person's answer to a question."""
        asked = await self._questions.take(request.flow, request.confirmation)
        if request.denied:
            return await self._declined(asked.client)
        who = asked.chosen(request.organization_id)
        if asked.invite:
            who = await self._join(asked)
        return await self._conclude(who, asked.client, request.user_agent)

    async def RedeemCode(self, request: pb.RedeemCodeRequest, context: Any) -> pb.SessionSecrets:
        """Gives a session for a program's code."""
        uri = request.redirect_uri
        who = await self._pending.redeem(request.code, request.code_verifier, uri)
        return await self._begin(who, "command line")

    async def RefreshSession(
        self, request: pb.RefreshSessionRequest, context: Any
    ) -> pb.SessionSecrets:
        """Gives a session other secrets."""
        try:
            return _secrets(await self._sessions.refresh(request.refresh_token))
        finally:
            self._wake.touch(KEYS_TOPIC)

    async def EndSession(
        self, request: pb.EndSessionRequest, context: Any
    ) -> pb.EndSessionResponse:
        """Ends a session."""
        ended = await self._sessions.end_by(request.refresh_token)
        self._wake.touch(KEYS_TOPIC)
        if ended is not None:
            self._note(SIGN_OUT, ended, users_pb2.RevokeApiKeyRequest(key_id=ended.id))
        return pb.EndSessionResponse()

    async def StartDevice(
        self, request: pb.StartDeviceRequest, context: Any
    ) -> pb.StartDeviceResponse:
        """Codes for a device without a browser."""
        device_code, user_code = await self._pending.begin_device(request.device)
        return pb.StartDeviceResponse(
            device_code=device_code,
            user_code=user_code,
            expires_in=DEVICE_SECONDS,
            interval=POLL_SECONDS,
        )

    async def PollDevice(self, request: pb.PollDeviceRequest, context: Any) -> pb.SessionSecrets:
        """Gives a session to a device that was let in."""
        who = await self._pending.poll_device(request.device_code)
        return await self._begin(who, request.user_agent or "device")

    async def LogOutByIssuer(
        self, request: pb.LogOutByIssuerRequest, context: Any
    ) -> pb.LogOutByIssuerResponse:
        """Ends the sessions of a person, or of one session at the issuer."""
        provider = await self._providers.any(request.provider_id)
        subject, session = await self._issuers.logged_out(provider, request.logout_token)
        await self._sessions.end(provider.id, subject=subject, issuer_session=session)
        self._wake.touch(KEYS_TOPIC)
        return pb.LogOutByIssuerResponse()

    async def _vouched(
        self, request: pb.FinishSignInRequest, flow: AtIssuer, provider: IdentityProvider
    ) -> IssuerPerson:
        """The person whom the issuer vouches for."""
        await self._issuers.require_named(provider, request.iss)
        if request.error or not request.code:
            raise refused("The issuer did not let you in.")
        person = await self._issuers.person(
            provider,
            await self._providers.secret_of(provider),
            code=request.code,
            callback=flow.callback,
            nonce=flow.nonce,
            verifier=flow.verifier,
        )
        if flow.fresh:
            require_asked(person, flow.begun_at)
        return person

    async def _ask_invited(
        self, person: IssuerPerson, provider: IdentityProvider, flow: AtIssuer
    ) -> pb.SignInStep:
        """Asks whether to join: a link that somebody else has sent binds nobody by itself."""
        digest = auth.digest(flow.invite)
        invite = await self._people.invited(person, provider, invite=digest)
        choices = {invite.organization_id: invite.user_id}
        asked = await self._ask(PendingQuestion(person, choices, flow.client, digest))
        asked.invited_by, asked.invited_as = invite.invited_by, invite.user_id
        return pb.SignInStep(question=asked)

    async def _join(self, asked: PendingQuestion) -> SignedIn:
        """Accepts the invite that a person was asked about."""
        provider = await self._providers.any(asked.person.provider_id)
        try:
            who = (await self._people.sign_in(asked.person, provider, invite=asked.invite))[0]
        except AppError as error:
            self._refuse(provider, error)
            raise
        invite_id = await self._invites.accepted(asked.invite)
        auth.enter(principal=auth.Principal(who.organization_id, "", who.user_id))
        self._audit.record(ACCEPT_INVITE, pb.GetInviteRequest(invite_id=invite_id), "OK")
        return who

    async def _declined(self, client: Client) -> pb.SignInStep:
        if client.user_code:
            await self._pending.decide_device(client.user_code, None)
            return pb.SignInStep(device=False)
        if client.redirect_uri:
            return pb.SignInStep(redirect=client.leads_to(error="access_denied"))
        return pb.SignInStep(declined=True)

    def _refuse(self, provider: IdentityProvider, error: AppError) -> None:
        stranger = auth.Principal(organization_id=provider.organization_id)
        self._audit.refuse(stranger, SIGN_IN, error, auth.client_address.get())

    async def _ask(self, asked: PendingQuestion) -> pb.SignInQuestion:
        titles = await self._people.titles(list(asked.choices))
        flow, confirmation = await self._questions.ask(asked)
        question = pb.SignInQuestion(
            flow=flow,
            confirmation=confirmation,
            choices=[
                pb.SignInChoice(organization_id=one, title=titles.get(one, one))
                for one in asked.choices
            ],
        )
        if asked.client.user_code:
            device = await self._pending.device(asked.client.user_code)
            question.user_code = device.user_code
            question.device, question.address = device.device, device.address
        return question

    async def _conclude(self, who: SignedIn, client: Client, user_agent: str) -> pb.SignInStep:
        if client.user_code:
            await self._pending.decide_device(client.user_code, who)
            return pb.SignInStep(device=True)
        if client.redirect_uri:
            code = await self._pending.give_code(who, client)
            return pb.SignInStep(redirect=client.leads_to(code=code))
        return pb.SignInStep(session=await self._begin(who, user_agent))

    async def _begin(self, who: SignedIn, name: str) -> pb.SessionSecrets:
        begun = await self._sessions.begin(who, name)
        by = pb.GetIdentityProviderRequest(provider_id=who.provider_id)
        self._note(SIGN_IN, begun.session, by)
        return _secrets(begun)

    def _note(self, action: str, session: ApiKey, named: Message) -> None:
        """Has an event of a person and their session in the audit log."""
        auth.enter(
            principal=auth.Principal(
                organization_id=session.organization_id,
                user_id=session.user_id,
                key_id=session.id,
            )
        )
        self._audit.record(action, named, "OK")


def _client(client: pb.SignInClient) -> Client:
    """The client that asks for a sign-in; raises InvalidArgument."""
    if client.HasField("loopback"):
        if len(client.loopback.state) > STATE_LENGTH:
            raise InvalidArgument(f"state has {STATE_LENGTH} characters at most.", param="state")
        return Client(
            redirect_uri=valid_loopback(client.loopback.redirect_uri),
            state=client.loopback.state,
            code_challenge=valid_challenge(client.loopback.code_challenge),
        )
    if not client.HasField("user_code"):
        return Client()
    # None of a device is empty.
    return Client(user_code=read_user_code(client.user_code) or "-")


def _secrets(given: Secrets) -> pb.SessionSecrets:
    return pb.SessionSecrets(
        session=messages.api_key(given.session),
        secret=given.secret,
        expires_at=given.session.expires_at,
        refresh_token=given.refresh_token,
        idle_until=given.idle_until,
        ends_at=given.ends_at,
    )

"""Sign-ins by a real issuer, and what is done in a session, in the audit log as OpenAI has it."""

from openai.types.admin.organization.audit_log_list_response import ActorSession
from tests.support.clients.audit_entries import Entry, details, entries, newest
from tests.support.clients.browser import Browser
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key
from tests.support.services.signed_in import by_invite, login, trust


def session(entry: Entry) -> ActorSession:
    """The session that an entry is of, and no key."""
    assert entry.actor
    assert (entry.actor.type, entry.actor.api_key) == ("session", None)
    assert entry.actor.session
    return entry.actor.session


async def test_what_a_person_does_is_their_sessions(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer, of_installation=False, domains=["a.example"])
    ann = await by_invite(owner, "ann", role="owner")
    me = (await ann.principal())["user_id"]
    async with administering(owner.front) as admin:
        came = await newest(admin, "login.succeeded")
        assert details(came) == {}
        (accepted,) = await entries(admin, event_types=["invite.accepted"])
        async with administering(owner.front, ann.secret) as by_ann:
            await by_ann.projects.create(name="Red")
        made = await newest(admin, "project.created")
        await token_ends(ann)
        left = await newest(admin, "logout.succeeded")
        for entry in (came, accepted, made, left):
            user = session(entry).user
            assert user
            assert (user.id, user.email) == (me, "ann@a.example")
        assert session(made).ip_address == session(came).ip_address == "127.0.0.1"
        assert await entries(admin, actor_ids=[ann.id]) == [left, made, came]
        by_address = await entries(admin, actor_emails=["Ann@a.example"])
        assert by_address == [left, made, came, accepted]
    async with administering(owner.front, await foreign_key(owner.front)) as stranger:
        assert await entries(stranger, event_types=["login.succeeded", "logout.succeeded"]) == []


async def token_ends(of: Key) -> None:
    form = {"token": of.body["refresh_token"]}
    async with of.front.http() as http:
        assert (await http.post("/login/revoke", data=form)).status_code == 200


async def test_who_is_refused_has_no_session(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer, of_installation=False, domains=["a.example"])
    async with Browser("bob") as browser:
        me = (await owner.principal())["organization_id"]
        page = await browser.open(login(owner, organization=me))
        assert page.status_code == 403
    async with administering(owner.front) as admin:
        failed = await newest(admin, "login.failed")
        assert details(failed)["error_message"] == "PERMISSION_DENIED"
        assert session(failed).ip_address == "127.0.0.1"

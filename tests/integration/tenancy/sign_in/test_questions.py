"""Questions in the middle of a sign-in: whether to join, answered once and by the person alone."""

from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key, join, organization
from tests.support.services.signed_in import LOOPBACK, by_invite, invite, login, loopback, trust


async def test_a_link_alone_binds_nobody(owner: Key, issuer: Issuer) -> None:
    """Ann is lured to an invite that would make her sign-in that of another's member."""
    await trust(owner, issuer)
    await join(owner, "boss", "organization_reader")
    link = await invite(owner, user_id="boss")
    async with Browser("ann") as browser:
        page = await browser.open(link)
        assert "Join an organization?" in page.text
        assert "as its member boss" in page.text
        me = await browser.http.get(f"{owner.front.url}/v1/me")
        assert me.status_code == 401
        declined = await browser.press(page, "No")
        assert "You did not join" in declined.text
        # She is nobody's still, and the question is answered.
        assert (await browser.press(page, "Join")).status_code == 400
        assert (await browser.open(login(owner))).status_code == 403
        # A program learns of it as OAuth says.
        asked = loopback(owner, invite=link.rpartition("/")[2])
        page = await browser.press(await browser.open(asked), "No", until=LOOPBACK)
        assert page.headers["location"] == f"{LOOPBACK}?error=access_denied&state=s%26t"
        # The link is good still, for whoever wants it.
        page = await browser.press(await browser.open(link), "Join")
        assert "You are boss" in page.text


async def test_an_invite_is_taken_back_before_the_answer(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    made = await owner.ask("POST", "/v1/organization/invites", json={"role": "reader"})
    async with Browser("ann") as browser:
        page = await browser.open(made.json()["link"])
        path = f"/v1/organization/invites/{made.json()['id']}"
        assert (await owner.ask("DELETE", path)).status_code == 200
        assert (await browser.press(page, "Join")).status_code == 404


async def test_a_question_is_answered_once_and_ends_with_its_session(
    owner: Key, issuer: Issuer
) -> None:
    provider = await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    second = await organization(owner, "second")
    answer = await owner.ask(
        "POST", "/v1/organization/invites", json={"role": "reader"}, headers=second
    )
    async with Browser("ann") as browser:
        await browser.press(await browser.open(answer.json()["link"]), "Join")
        page = await browser.open(login(owner))
        assert "Signed in" in (await browser.press(page, "second")).text
        # A copy of the cookie and the page, a second time.
        assert (await browser.press(page, "second")).status_code == 400

    issuer.start(logout_uri=f"{owner.front.url}/login/backchannel/{provider}")
    async with Browser("ann") as browser:
        page = await browser.open(login(owner))
        assert "For which organization?" in page.text
        logout = await browser.open(f"{issuer.url}/session/end")
        await browser.submit(logout, logout="yes")
        assert (await browser.press(page, "second")).status_code == 400

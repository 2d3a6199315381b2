"""/login: the way of a browser to its issuer and back."""

from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel
from pydantic import Field as PydanticField

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.sign_in import pages
from windlass.gateway.sign_in.cookies import SignInCookies
from windlass.gateway.sign_in.routes import Guesses, PageRoute, counted

TEXT_LENGTH = 2048
Text = Annotated[str, Query(max_length=TEXT_LENGTH)]
Field = Annotated[str, Form(max_length=TEXT_LENGTH)]
# Of the parameters of /login, those that go along to the issuer's choice.
_ALONG = (
    "invite",
    "redirect_uri",
    "state",
    "code_challenge",
    "code_challenge_method",
    "user_code",
    "fresh",
)


class BrowserPages:
    """Addresses and answers of this gateway for browsers."""

    def __init__(self, app: App):
        self.sign_in = app.clients.stub(rpc.SignInServiceStub)
        self._public_url = app.settings.http.public_url.rstrip("/")
        # As the gateway reads them: it is served by https, or is not, for all browsers.
        self.cookies = SignInCookies(secure=app.settings.public_url.startswith("https://"))

    def base(self, request: Request) -> str:
        """The URL by which the browser reaches us."""
        return self._public_url or str(request.base_url).rstrip("/")

    def answer(self, step: pb.SignInStep) -> Response:
        """The next page of the browser; the step before is over."""
        cookies, kind = self.cookies, step.WhichOneof("next")
        if kind == "question":
            response: Response = pages.question_page(step.question)
            cookies.keep_flow(response, step.question.flow)
            return response
        if kind == "redirect":
            response = _to(step.redirect)
        elif kind == "device":
            let_in = "The device is let in. You may close this page."
            response = pages.done_page(let_in if step.device else "The device was refused.")
        elif kind == "declined":
            response = pages.done_page("You did not join.", title="Not joined")
        else:
            session = step.session.session
            response = pages.done_page(f"You are {session.user_id} of {session.organization_id}.")
            cookies.keep_session(response, step.session)
        cookies.drop_flow(response)
        return response


class SignInStart(BaseModel):
    """The query by which a sign-in begins."""

    provider: Annotated[str, PydanticField(max_length=TEXT_LENGTH)]
    invite: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    redirect_uri: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    state: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    code_challenge: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    code_challenge_method: Literal["S256"] = "S256"
    # Shows again who they are, though the issuer knows them still.
    fresh: bool = False
    user_code: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""

    def client(self) -> pb.SignInClient:
        """The client that asks for the sign-in."""
        if self.redirect_uri:
            return pb.SignInClient(
                loopback=pb.LoopbackClient(
                    redirect_uri=self.redirect_uri,
                    state=self.state,
                    code_challenge=self.code_challenge,
                )
            )
        if self.user_code:
            return pb.SignInClient(user_code=self.user_code)
        return pb.SignInClient(browser=True)


def browser_router(app: App, guesses: Guesses) -> APIRouter:
    """Pages and redirects of a sign-in."""
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    browser = BrowserPages(app)

    @router.get("/login")
    async def choose(
        request: Request, organization: Text = "", invite: Text = "", email: Text = ""
    ) -> Response:
        query = request.query_params
        along = {name: query[name] for name in _ALONG if name in query}
        asked = pb.FindWaysInRequest(organization_id=organization, invite_token=invite, email=email)
        with counted(guesses, request):
            found = await browser.sign_in.FindWaysIn(asked)
        if len(found.ways) == 1 and not found.asks_address:
            return _to(pages.start_url(found.ways[0].provider_id, along))
        return pages.ways_page(found.ways, along, asks_address=found.asks_address)

    @router.get("/login/device")
    async def device(organization: Text = "", fresh: Text = "") -> Response:
        along = {"organization": organization, "fresh": fresh}
        return pages.code_page({name: text for name, text in along.items() if text})

    @router.get("/invites/{token}")
    async def invited(token: str) -> Response:
        return _to(f"/login?{urlencode({'invite': token})}")

    @router.get("/login/start")
    async def start(request: Request, asked: Annotated[SignInStart, Query()]) -> Response:
        with counted(guesses, request):
            begun = await browser.sign_in.StartSignIn(
                pb.StartSignInRequest(
                    provider_id=asked.provider,
                    callback=f"{browser.base(request)}/login/callback",
                    client=asked.client(),
                    invite_token=asked.invite,
                    fresh=asked.fresh,
                )
            )
        response = _to(begun.authorization_url)
        browser.cookies.keep_flow(response, begun.flow)
        return response

    return router


def answers_router(app: App, guesses: Guesses) -> APIRouter:
    """Answers of issuers, and of people who were asked."""
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    browser = BrowserPages(app)

    @router.get("/login/callback")
    async def callback(
        request: Request, state: Text = "", code: Text = "", iss: Text = "", error: Text = ""
    ) -> Response:
        asked = pb.FinishSignInRequest(
            flow=browser.cookies.flow(request),
            state=state,
            code=code,
            iss=iss,
            error=error,
            user_agent=request.headers.get("user-agent", ""),
        )
        with counted(guesses, request):
            return browser.answer(await browser.sign_in.FinishSignIn(asked))

    @router.post("/login/confirm")
    async def confirm(
        request: Request, confirmation: Field, organization_id: Field = "", denied: Field = ""
    ) -> Response:
        asked = pb.ConfirmSignInRequest(
            flow=browser.cookies.flow(request),
            organization_id=organization_id,
            confirmation=confirmation,
            denied=bool(denied),
            user_agent=request.headers.get("user-agent", ""),
        )
        with counted(guesses, request):
            return browser.answer(await browser.sign_in.ConfirmSignIn(asked))

    return router


def browser_sessions_router(app: App, guesses: Guesses) -> APIRouter:
    """Renewal and end of a browser's session, for our own pages."""
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    browser = BrowserPages(app)

    @router.post("/login/refresh")
    async def refresh(request: Request) -> Response:
        _require_own_page(request)
        response, cookies = Response(status_code=204), browser.cookies
        token = cookies.refresh_token(request)
        try:
            with counted(guesses, request):
                asked = pb.RefreshSessionRequest(refresh_token=token)
                cookies.keep_session(response, await browser.sign_in.RefreshSession(asked))
        except InvalidArgument:
            cookies.drop_session(response)
            response.status_code = 401
        return response

    @router.post("/login/end")
    async def end(request: Request) -> Response:
        _require_own_page(request)
        if token := browser.cookies.refresh_token(request):
            with counted(guesses, request):
                await browser.sign_in.EndSession(pb.EndSessionRequest(refresh_token=token))
        response = pages.done_page("You are signed out.")
        browser.cookies.drop_session(response)
        return response

    return router


def _to(url: str) -> Response:
    return RedirectResponse(url, 303, headers={"cache-control": "no-store"})


def _require_own_page(request: Request) -> None:
    """Raises InvalidArgument for a form that another site has sent in a browser's name."""
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise InvalidArgument("This was sent by a page of another site.", param="sec-fetch-site")

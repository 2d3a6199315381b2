"""Questions to issuers and their answers: OpenID Connect's code flow with PKCE.

Sources: OpenID Connect Core 1.0, RFC 7636, RFC 9207.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlsplit

from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from windlass.bounds import (
    MAX_PROVIDER_GROUPS,
    MAX_SIGN_IN_AGE,
    PROVIDER_GROUP_LENGTH,
    PROVIDER_TEXT_LENGTH,
)
from windlass.core.clock import now_seconds
from windlass.core.errors import Unavailable
from windlass.core.oidc import tokens
from windlass.core.oidc.issuers import IssuerRefused, IssuerUnavailable, OidcIssuers
from windlass.core.oidc.tokens import TokenRefused
from windlass.users.sign_in.domain import IdentityProvider, IssuerPerson, refused

# Whose issuers are for every organization.
INSTALLATION = "installation"
# Of names that issuers give.
NAME_LENGTH = 200
LOGOUT_TYPES = frozenset({"", "jwt", "logout+jwt"})
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
SUBJECT_LENGTH = 255
# Between an issuer's clock and ours. A token comes from the issuer itself, for a code and a nonce
# of this very sign-in, so that nobody gains by a long one.
LEEWAY_SECONDS = 300
# Between the clocks of an issuer's own machines, and of what they round.
FRESH_LEEWAY_SECONDS = 60
_LATEST = 2**53


class IssuerAnswers:
    """Sends people to their issuers, and reads whom the issuers vouch for."""

    def __init__(self, issuers: OidcIssuers):
        self._issuers = issuers

    async def authorization_url(
        self,
        provider: IdentityProvider,
        *,
        callback: str,
        state: str,
        nonce: str,
        verifier: str,
        fresh: bool,
    ) -> str:
        """The address at which the browser signs in; raises Unavailable."""
        metadata = await self.metadata(provider)
        # Whoever is signed in there already shows again who they are.
        # An issuer that is told a time says when that was.
        more = {"prompt": "login", "max_age": 0} if fresh else {"max_age": MAX_SIGN_IN_AGE}
        endpoint = metadata.get("authorization_endpoint")
        if not isinstance(endpoint, str) or urlsplit(endpoint).scheme not in ("http", "https"):
            raise Unavailable(f"{provider.name} has no address to sign in at.")
        return str(
            prepare_grant_uri(
                endpoint,
                provider.client_id,
                "code",
                redirect_uri=callback,
                scope=" ".join(("openid", *provider.scopes)),
                state=state,
                nonce=nonce,
                code_challenge=create_s256_code_challenge(verifier),
                code_challenge_method="S256",
                **more,
            )
        )

    async def metadata(self, provider: IdentityProvider) -> Mapping[str, Any]:
        """The metadata of the issuer; raises Unavailable."""
        try:
            return await self._issuers.metadata(provider.issuer, owner=_owner(provider))
        except IssuerUnavailable as error:
            raise _away(provider, error) from error

    async def require_named(self, provider: IdentityProvider, iss: str) -> None:
        """Raises PermissionDenied for an answer of another issuer (RFC 9207)."""
        if iss:
            is_it = iss == provider.issuer
        else:
            metadata = await self.metadata(provider)
            is_it = metadata.get("authorization_response_iss_parameter_supported") is not True
        if not is_it:
            raise refused("The answer is of another issuer.")

    async def person(
        self,
        provider: IdentityProvider,
        secret: str,
        *,
        code: str,
        callback: str,
        nonce: str,
        verifier: str,
    ) -> IssuerPerson:
        """The person whom the issuer vouches for by a code.

        Raises PermissionDenied, Unavailable.
        """
        metadata = await self.metadata(provider)
        form = prepare_token_request(
            "authorization_code", redirect_uri=callback, code=code, code_verifier=verifier
        )
        endpoint = str(metadata.get("token_endpoint", ""))
        method = _method(metadata, secret)
        # Authlib joins them as they are; HTTP Basic wants them form-encoded (RFC 6749, 2.3.1).
        encoded = quote_plus if method == "client_secret_basic" else str
        client = ClientAuth(encoded(provider.client_id), encoded(secret), method)
        url, headers, body = client.prepare("POST", endpoint, {}, form)
        answer = await self._ask(provider, url, headers=headers, form=body)
        claims = await self._verified(provider, str(answer.get("id_token", "")), nonce)
        if not claims.get("email") and isinstance(metadata.get("userinfo_endpoint"), str):
            claims = await self._with_userinfo(
                provider, metadata["userinfo_endpoint"], str(answer.get("access_token", "")), claims
            )
        return _person(provider, claims)

    async def logged_out(self, provider: IdentityProvider, token: str) -> tuple[str, str]:
        """Subject and session, one of them maybe empty, that a logout token ends.

        Raises PermissionDenied, Unavailable.
        """
        claims = await self._verify(provider, token, LOGOUT_TYPES)
        events = claims.get("events")
        subject, session = _text(claims, "sub"), _text(claims, "sid")
        is_logout = isinstance(events, dict) and LOGOUT_EVENT in events
        if not is_logout or "nonce" in claims or not (subject or session):
            raise refused("It is no logout token.")
        return subject, session

    async def _verified(self, provider: IdentityProvider, token: str, nonce: str) -> dict[str, Any]:
        # The issuer itself gave it, who may have rotated its keys since somebody left for it. No
        # stranger has us fetch keys by it.
        claims = await self._verify(provider, token, tokens.JWT, refetch=0.0)
        said = claims.get("nonce")
        if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
            raise refused("The answer is for another sign-in.")
        audiences = claims.get("aud")
        several = isinstance(audiences, list) and len(audiences) > 1
        if claims.get("azp", None if several else provider.client_id) != provider.client_id:
            raise refused("The answer is for another client.")
        return claims

    async def _verify(
        self, provider: IdentityProvider, token: str, types: frozenset[str], **call: Any
    ) -> dict[str, Any]:
        try:
            return await self._issuers.verify(
                tokens.read(token),
                issuer=provider.issuer,
                audience=provider.client_id,
                owner=_owner(provider),
                types=types,
                leeway=LEEWAY_SECONDS,
                **call,
            )
        except TokenRefused as error:
            raise refused(f"The issuer's token is not to be trusted: {error}") from error
        except IssuerUnavailable as error:
            raise _away(provider, error) from error

    async def _with_userinfo(
        self, provider: IdentityProvider, endpoint: str, token: str, claims: dict[str, Any]
    ) -> dict[str, Any]:
        """The claims, and those that the issuer tells on request alone."""
        headers = {"Authorization": f"Bearer {token}"}
        told = await self._ask(provider, endpoint, headers=headers)
        if told.get("sub") != claims.get("sub"):
            raise refused("The issuer told of another person.")
        return told | claims

    async def _ask(self, provider: IdentityProvider, url: str, **call: Any) -> dict[str, Any]:
        try:
            return await self._issuers.ask(url, owner=_owner(provider), **call)
        except IssuerRefused as error:
            raise refused(str(error)) from error
        except IssuerUnavailable as error:
            raise _away(provider, error) from error


def _away(provider: IdentityProvider, error: IssuerUnavailable) -> Unavailable:
    return Unavailable(f"Nobody can sign in by {provider.name} now. {error}")


def _owner(provider: IdentityProvider) -> str:
    return provider.organization_id or INSTALLATION


def _method(metadata: Mapping[str, Any], secret: str) -> str:
    """The way in which our client shows its secret: HTTP Basic, unless the issuer has another."""
    if not secret:
        return "none"
    known = metadata.get("token_endpoint_auth_methods_supported")
    basic = not isinstance(known, list) or "client_secret_basic" in known
    return "client_secret_basic" if basic else "client_secret_post"


def _person(provider: IdentityProvider, claims: Mapping[str, Any]) -> IssuerPerson:
    subject = _text(claims, "sub", SUBJECT_LENGTH)
    if not subject:
        raise refused("The issuer did not say who signed in.")
    email = _text(claims, "email", PROVIDER_TEXT_LENGTH).lower()
    verified = email if claims.get("email_verified") is True else ""
    return IssuerPerson(
        provider_id=provider.id,
        issuer=provider.issuer,
        subject=subject,
        email=verified,
        name=_text(claims, "name", NAME_LENGTH),
        groups=_names(claims.get(provider.groups_claim)) if provider.groups_claim else (),
        auth_at=_auth_at(claims),
        directory_id=_directory_id(provider, claims, verified),
        acr=_text(claims, "acr", PROVIDER_GROUP_LENGTH),
        amr=_names(claims.get("amr")),
        issuer_session=_text(claims, "sid"),
    )


def _auth_at(claims: Mapping[str, Any]) -> int:
    """The time by our clock at which a person showed who they are; 0: the issuer does not say.

    Their age is the issuer's, since both of its times are by its own clock, however that is off.
    """
    said, issued = _time(claims, "auth_time"), _time(claims, "iat")
    # Who does not say it may have asked them long ago.
    return max(1, now_seconds() - max(0, issued - said)) if said and issued else 0


def _time(claims: Mapping[str, Any], name: str) -> int:
    """A claim that is a time, in Unix seconds; 0 for any other. A bool is an int."""
    value: Any = claims.get(name)
    is_time = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_time and 0 < value <= _LATEST else 0


def require_asked(person: IssuerPerson, begun_at: int) -> None:
    """Raises PermissionDenied where the issuer says that it did not ask anew who somebody is.

    One that says no time may have asked: what needs to know it takes no such sign-in.
    """
    before = begun_at - person.auth_at
    if person.auth_at and before > FRESH_LEEWAY_SECONDS:
        raise refused(
            "The issuer was told to ask again who you are, and did not: it says that you showed it "
            f"{before} seconds before. Sign out there, then begin anew."
        )


def _directory_id(provider: IdentityProvider, claims: Mapping[str, Any], verified: str) -> str:
    """The claim by which the directory knows a person; an address only once it is verified."""
    if provider.person_claim == "email":
        return verified
    return _text(claims, provider.person_claim) if provider.person_claim else ""


def _names(value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    # What is longer is nobody's name here.
    return tuple(
        one
        for one in values[: 4 * MAX_PROVIDER_GROUPS]
        if isinstance(one, str) and len(one) <= PROVIDER_GROUP_LENGTH
    )


def _text(claims: Mapping[str, Any], name: str, most: int = PROVIDER_TEXT_LENGTH) -> str:
    """A claim that is printable text of a bounded length; empty for any other."""
    value = claims.get(name)
    good = isinstance(value, str) and len(value) <= most and value.isprintable()
    return str(value) if good else ""


def challenge_of(verifier: str) -> str:
    """The S256 challenge of a PKCE verifier (RFC 7636)."""
    return str(create_s256_code_challenge(verifier))


def fingerprint(text: str) -> bytes:
    """The digest by which a code is stored."""
    return hashlib.sha256(text.encode()).digest()

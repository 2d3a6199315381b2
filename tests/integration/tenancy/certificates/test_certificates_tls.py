"""Client certificates where Windlass itself ends TLS."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.environments.certificates import self_signed
from tests.support.environments.client_certificates import Made, made
from tests.support.services.front import Front, running_front
from tests.support.services.member_keys import SECONDS
from tests.support.waiting import until

URL = "/v1/organization/certificates"


@pytest.fixture
async def tls(
    database_url: str, tmp_path: Path, authority: Made, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Front]:
    certificate, secret = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    others = made("others", ca=True)
    (tmp_path / "clients.pem").write_text(authority.pem + others.pem)
    http = {
        "tls": {
            "certificate": certificate,
            "key": secret,
            "client_ca": tmp_path / "clients.pem",
            "clients": "optional",
        },
    }
    async with running_front(database_url, tmp_path / "data", http=http) as front:
        yield front


async def ask(
    front: Front, folder: Path, client: Made | None, path: str = "/v1/me", **options: Any
) -> httpx.Response:
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    if client is not None:
        context.load_cert_chain(*client.files(folder, "client"))
    headers = {"Authorization": f"Bearer {front.owner_key}", **options.pop("headers", {})}
    async with httpx.AsyncClient(base_url=front.url, headers=headers, verify=context) as http:
        return await http.request("POST" if options else "GET", path, **options)


def code(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json().get("error") or {}
    return answer.status_code, str(error.get("code", ""))


async def test_the_connection_s_certificate_decides(
    tls: Front, tmp_path: Path, authority: Made, client: Made
) -> None:
    assert code(await ask(tls, tmp_path, None)) == (200, "")
    made_ = await ask(tls, tmp_path, None, URL, json={"certificate": authority.pem})
    ids = {"certificate_ids": [made_.json()["id"]]}
    # A header is not a connection.
    for headers in ({}, client.headers()):
        refused = await ask(tls, tmp_path, None, f"{URL}/activate", json=ids, headers=headers)
        assert code(refused) == (409, "certificate_locks_you_out")
    assert (await ask(tls, tmp_path, client, f"{URL}/activate", json=ids)).status_code == 200
    await until(
        lambda: ask(tls, tmp_path, None),
        SECONDS,
        holds=lambda got: code(got) == (403, "client_certificate_required"),
    )
    forged = await ask(tls, tmp_path, None, headers=client.headers())
    assert code(forged) == (403, "client_certificate_required")
    assert code(await ask(tls, tmp_path, client)) == (200, "")


async def test_another_authority_s_client_connects_and_is_refused(
    tls: Front, tmp_path: Path, authority: Made, client: Made
) -> None:
    """The listener knows more authorities than the organization demands."""
    made_ = await ask(tls, tmp_path, None, URL, json={"certificate": client.pem})
    ids = {"certificate_ids": [made_.json()["id"]]}
    assert (await ask(tls, tmp_path, client, f"{URL}/activate", json=ids)).status_code == 200
    sibling = made("sibling", authority)
    await until(
        lambda: ask(tls, tmp_path, sibling),
        SECONDS,
        holds=lambda got: code(got) == (403, "client_certificate_not_admitted"),
    )
    assert code(await ask(tls, tmp_path, client)) == (200, "")


async def test_a_certificate_that_the_listener_does_not_know_gets_no_connection(
    tls: Front, tmp_path: Path
) -> None:
    with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
        await ask(tls, tmp_path, made("stranger"))

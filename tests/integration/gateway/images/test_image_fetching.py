"""Fetches of images: from listed hosts, through redirects, and never from within the network."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.fakes.image_host import LOOPBACK, PNG, ImageHost, image_host
from tests.support.waiting import until

from windlass.gateway.inference.images import fetching
from windlass.gateway.inference.images.fetching import (
    HOST_FETCHES,
    PROJECT_FETCHES,
    HostNotListed,
    ImageFetcher,
    NotFetched,
    NoTurn,
)

MOST = 2**20


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ImageHost]:
    async with image_host(tmp_path) as host:
        yield host


@pytest.fixture
async def fetcher(host: ImageHost) -> AsyncIterator[ImageFetcher]:
    made = ImageFetcher([host.name], LOOPBACK, tls=host.trust)
    yield made
    await made.close()


async def test_an_image_comes_by_its_very_url(host: ImageHost, fetcher: ImageFetcher) -> None:
    target = "/image?signature=a%2Fb+c%3D&x=%7e"
    assert await fetcher.fetch("proj", host.url + target, MOST) == PNG
    assert host.asked == [target]


async def test_a_redirect_leads_to_listed_hosts(host: ImageHost, fetcher: ImageFetcher) -> None:
    for where in (f"{host.url}/image", "/image", "image"):
        assert await fetcher.fetch("proj", f"{host.url}/to?where={where}", MOST) == PNG


@pytest.mark.parametrize(
    "where",
    [
        "https://127.0.0.1/image", "https://localhost:{port}/image", "http://{name}/image",
        "//127.0.0.2:{port}/image", "https://169.254.169.254/latest/meta-data/",
        "https://user@{name}/image", "file:///etc/passwd", "data:image/png;base64,aGk=",
        "https://{name}%5C@evil.example/", "https://127.1:{port}/image",
    ],
)  # fmt: skip
async def test_a_redirect_leads_nowhere_else(
    host: ImageHost, fetcher: ImageFetcher, where: str
) -> None:
    where = where.format(name=host.name, port=host.port).replace("%5C", "%255C")
    with pytest.raises(NotFetched):
        await fetcher.fetch("proj", f"{host.url}/to?where={where}", MOST)
    assert len(host.asked) == 1


async def test_redirects_end(host: ImageHost, fetcher: ImageFetcher) -> None:
    with pytest.raises(NotFetched, match="redirected more than 3 times"):
        await fetcher.fetch("proj", f"{host.url}/again", MOST)
    assert len(host.asked) == 4


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/endless", "more than 1048576 bytes"),
        ("/none", r"answered with the status 404$"),
        ("/packed", "sent it compressed"),
    ],
)
async def test_what_is_no_answer_is_told_in_words_of_ours(
    host: ImageHost, fetcher: ImageFetcher, path: str, why: str
) -> None:
    with pytest.raises(NotFetched, match=why) as refused:
        await fetcher.fetch("proj", host.url + path, MOST)
    assert "secret" not in str(refused.value)


async def test_a_host_that_is_slow_is_left(
    host: ImageHost, fetcher: ImageFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SECONDS", 0.5)
    with pytest.raises(NotFetched, match="did not respond within"):
        await fetcher.fetch("proj", f"{host.url}/held", MOST)


async def test_no_project_takes_all_turns(host: ImageHost, fetcher: ImageFetcher) -> None:
    held = f"{host.url}/held"
    crowd = [
        asyncio.ensure_future(fetcher.fetch("one", held, MOST)) for _ in range(PROJECT_FETCHES + 4)
    ]
    await until(lambda: host.active == PROJECT_FETCHES)
    assert await fetcher.fetch("other", f"{host.url}/image", MOST) == PNG
    host.released.set()
    assert await asyncio.gather(*crowd) == [PNG] * len(crowd)
    assert host.most_active == PROJECT_FETCHES + 1


async def test_who_has_no_turn_is_told_so_and_not_of_the_host(
    host: ImageHost, fetcher: ImageFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TURN_SECONDS", 0.05)
    held = f"{host.url}/held"
    crowd = [
        asyncio.ensure_future(fetcher.fetch(f"p{number}", held, MOST))
        for number in range(HOST_FETCHES)
    ]
    await until(lambda: host.active == HOST_FETCHES)
    with pytest.raises(NoTurn):
        await fetcher.fetch("other", f"{host.url}/image", MOST)
    host.released.set()
    assert await asyncio.gather(*crowd) == [PNG] * len(crowd)


@pytest.mark.parametrize(
    "url",
    [
        "https://b.example/x", "https://a.example:8443/x", "https://sub.a.example/x",
        "https://a.example./x", "https://a.example@b.example/x", "https://b.example/#a.example",
        "https://b.example\\a.example/", "http://a.example/x", "https://a.example:0/x", "https://",
        "https://a.exam\u200dple/", "https://[::1]/x", "https://2130706433/x",
    ],
)  # fmt: skip
async def test_a_host_is_listed_by_its_whole_name(url: str) -> None:
    fetcher = ImageFetcher(["a.example"], ())
    with pytest.raises(NotFetched):
        fetcher.admit(url)
    for good in ("https://a.example/x", "https://a.example:443/x", "https://A.example/x"):
        fetcher.admit(good)
    await fetcher.close()


async def test_without_a_list_there_are_no_urls() -> None:
    fetcher = ImageFetcher((), ())
    with pytest.raises(HostNotListed, match=r"inference\.media_hosts"):
        await fetcher.fetch("proj", "https://a.example/x", MOST)
    await fetcher.close()


@pytest.mark.parametrize("found", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_a_listed_name_leads_to_public_addresses(
    host: ImageHost, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake resolver: no name server of a test's could answer for a name on the internet."""
    family = socket.AF_INET6 if ":" in found else socket.AF_INET
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda name, port, *_: [(family, socket.SOCK_STREAM, 6, "", (found, port))],
    )
    fetcher = ImageFetcher([f"a.example:{host.port}"], (), tls=host.trust)
    with pytest.raises(NotFetched, match=r"^a.example has no public address$"):
        await fetcher.fetch("proj", f"https://a.example:{host.port}/image", MOST)
    assert not host.asked
    await fetcher.close()


async def test_the_address_that_was_checked_is_connected_to(
    host: ImageHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is rebound: the second answer of its name server leads inside."""
    asked = []

    def look_up(name: str, port: int, *_: object) -> list[object]:
        asked.append(name)
        address = "203.0.114.1" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr(fetching, "SECONDS", 0.5)
    fetcher = ImageFetcher([f"a.example:{host.port}"], (), tls=host.trust)
    with pytest.raises(NotFetched):
        await fetcher.fetch("proj", f"https://a.example:{host.port}/image", MOST)
    assert asked == ["a.example"]
    assert not host.asked
    await fetcher.close()


async def test_a_listed_host_proves_who_it_is(host: ImageHost) -> None:
    fetcher = ImageFetcher([host.name], LOOPBACK, tls=ssl.create_default_context())
    with pytest.raises(NotFetched, match="no certificate that is trusted here"):
        await fetcher.fetch("proj", f"{host.url}/image", MOST)
    await fetcher.close()

"""Webhooks: what is signed, which URLs a tenant may name, which addresses are connected to."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import openai
import pytest
from openai.types.webhooks import FineTuningJobFailedWebhookEvent

from windlass.core.clock import now_seconds
from windlass.core.errors import InvalidArgument
from windlass.core.outbound import connections
from windlass.core.outbound import receivers as sending
from windlass.core.outbound.receivers import Receivers, Unreachable
from windlass.core.outbound.signing import new_secret, signed
from windlass.core.outbound.urls import AddressRules
from windlass.jobs.domain.job import JobState
from windlass.jobs.domain.webhooks import Event, end_of, event_type

PUBLIC = AddressRules((), allow_http=False)
HOME = AddressRules((ip_network("10.1.0.0/16"), ip_network("fd00::/8")), allow_http=True)


def test_openais_client_accepts_what_is_signed() -> None:
    event = end_of("ftjob-abc", event_type(JobState.FAILED), 1_700_000_000_999)
    secret = new_secret()
    webhooks = openai.OpenAI(api_key="none").webhooks
    headers = signed(event.id, event.body, secret, now_seconds())
    found = webhooks.unwrap(event.body, headers, secret=secret)
    assert isinstance(found, FineTuningJobFailedWebhookEvent)
    assert (found.id, found.data.id, found.object) == ("evt_abc", "ftjob-abc", "event")
    assert found.created_at == 1_700_000_000
    for wrong in (new_secret(), secret):
        body = event.body if wrong != secret else event.body.replace(b"abc", b"abd")
        with pytest.raises(openai.InvalidWebhookSignatureError):
            webhooks.unwrap(body, headers, secret=wrong)


def test_the_example_of_the_standard_is_signed_as_it_says() -> None:
    """The values are those of the test vectors of Standard Webhooks' reference libraries."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    standard = Event(id="msg_p5jXN8AQM9LWM0D4loKWxJek", type="", created_at=0, job_id="")
    headers = signed(standard.id, b'{"test": 2432232314}', secret, 1614265330)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "https://example.com:8443/a%2Fb?c=d", "https://[2606:4700::1111]/x"],
)
def test_public_urls_over_https_are_admitted(url: str) -> None:
    PUBLIC.admit(url)


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com", "http://example.com", "ftp://example.com", "https://", "https:///x",
        "https://me:pw@example.com", "https://example.com@10.0.0.1", "https://example.com#a",
        "https://exa mple.com", "https://example.com/\n", "https://exämple.com",
        "https://example.com:0", "https://example.com:99999", "https://example.com\\@10.0.0.1",
        "https://127.0.0.1/x", "https://[::1]", "https://[::ffff:127.0.0.1]",
        "https://169.254.169.254/latest", "https://10.1.2.3", "https://[fe80::1%25eth0]",
        "https://127.1", "https://2130706433", "https://0x7f000001", "https://a.0x7f.1.",
        "https://example.com/" + "x" * 2048, "https://" + "a." * 130 + "com",
    ],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        PUBLIC.admit(url)
    assert refused.value.param == "url"


def test_an_operator_may_allow_networks_and_http() -> None:
    for url in ("http://10.1.2.3:8000/x", "https://[fd00::1]", "http://example.com"):
        HOME.admit(url)
    with pytest.raises(InvalidArgument):
        HOME.admit("http://10.2.0.1")


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1",
        "198.18.0.1", "224.0.1.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
        "fe80::1%eth0", "fec0::1", "fd00:ec2::254", "ff0e::1", "::ffff:10.0.0.1",
        "::ffff:8.8.8.8", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001:0:1::1",
        "2002:7f00:1::1", "2001:db8::1",
    ],
)  # fmt: skip
def test_no_address_but_public_ones_is_connected_to(address: str) -> None:
    assert not PUBLIC.permits(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "203.0.114.1", "2606:4700::1111"])
def test_public_addresses_are_connected_to(address: str) -> None:
    assert PUBLIC.permits(ip_address(address))


@pytest.mark.parametrize("found", ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254"])
async def test_a_name_leads_to_no_other_address(
    found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = socket.AF_INET6 if ":" in found else socket.AF_INET
    monkeypatch.setattr(
        "socket.getaddrinfo",
        lambda host, port, *_: [(family, socket.SOCK_STREAM, 6, "", (found, port))],
    )
    receivers = Receivers(PUBLIC)
    with pytest.raises(Unreachable, match=r"^good.example has no public address$"):
        await receivers.post("proj_a", "https://good.example/", b"{}", {})
    await receivers.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_a_socket_is_made_for_no_other_address(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the URL was taken for when it was admitted."""
    monkeypatch.setattr(AddressRules, "admit", lambda self, url: None)
    receivers = Receivers(PUBLIC)
    with pytest.raises(Unreachable, match="has no public address"):
        await receivers.post("proj_a", f"https://{host}:1/", b"{}", {})
    await receivers.close()


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[str]]]:
    """A fake resolver: when its slow names are answered, and those that it was asked about.

    No name server of a test's could be slow for some names alone.
    """
    released, asked = threading.Event(), list[str]()

    def look_up(host: str, port: int, *_: object) -> list[object]:
        asked.append(host)
        if host.startswith("slow"):
            released.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))]

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr(sending, "SECONDS", 0.3)
    yield released, asked
    released.set()


async def test_slow_names_of_one_project_keep_no_other_waiting(
    slow_names: tuple[threading.Event, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    released, asked = slow_names
    receivers = Receivers(PUBLIC)
    crowd = [f"https://slow{n}.example/" for n in range(connections.RESOLVER_THREADS + 1)]
    for _ in range(2):
        # Whoever gave up waiting leaves a thread behind, which still counts.
        calls = [receivers.post("proj_a", url, b"{}", {}) for url in crowd]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(one) for one in results} == {Unreachable}
        assert "did not respond within" in str(results[0])
    assert len(asked) == connections.PROJECT_LOOKUPS
    # Time enough for a machine that is busy.
    monkeypatch.setattr(sending, "SECONDS", 60.0)
    with pytest.raises(Unreachable, match=r"^quick.example has no public address$"):
        await receivers.post("proj_b", "https://quick.example/", b"{}", {})
    released.set()
    with pytest.raises(Unreachable, match=r"^later.example has no public address$"):
        await receivers.post("proj_a", "https://later.example/", b"{}", {})
    await receivers.close()

"""Judgement of clients' certificates: kept until it may change, and never an error."""

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.costs import thread_seconds
from tests.support.environments.client_certificates import made

from windlass.core import clock
from windlass.core.addresses import ClientAddresses
from windlass.core.certificates import (
    ClientTrust,
    PresentedCertificate,
    is_admitted,
    presented_by,
    trust_of,
)
from windlass.core.certificates import trust as trusting
from windlass.core.config import HttpSection

ROOT = made("root", ca=True, days=(-1, 3))
LEAF = made("leaf", ROOT, days=(-1, 2))
LATER = made("later", ROOT, days=(1, 2))
DAY = 86400
PROXY = ClientAddresses(
    HttpSection.model_validate({"trusted_proxies": ["10.0.0.1/32"]}).trusted_proxies
)


def moved(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    ahead = [0.0]
    monkeypatch.setattr(clock, "now", lambda: time.time() + ahead[0])
    return lambda seconds: ahead.__setitem__(0, seconds)


def test_a_judgement_lasts_no_longer_than_what_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    at = moved(monkeypatch)
    trust, leaf = ClientTrust([ROOT.der]), PresentedCertificate.of(LEAF.der)
    later = PresentedCertificate.of(LATER.der)
    assert trust.admits(leaf)
    assert not trust.admits(later)
    at(1.5 * DAY)
    assert trust.admits(leaf)
    assert trust.admits(later)
    at(2 * DAY + 5)
    assert not trust.admits(leaf)


def test_the_end_of_an_authority_is_the_end_of_its_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    at = moved(monkeypatch)
    short = made("short", ca=True, days=(-1, 1))
    leaf = PresentedCertificate.of(made("leaf", short, days=(-1, 9)).der)
    trust = ClientTrust([short.der])
    assert trust.admits(leaf)
    at(2 * DAY)
    assert not trust.admits(leaf)


def test_a_judgement_is_kept_and_costs_microseconds() -> None:
    trust, leaf = ClientTrust([ROOT.der]), PresentedCertificate.of(LEAF.der)
    assert trust.admits(leaf)
    assert thread_seconds(lambda: all(trust.admits(leaf) for _ in range(10_000))) < 0.5


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusting, "KEPT", 4)
    trust = ClientTrust([ROOT.der])
    for n in range(20):
        assert not trust.admits(PresentedCertificate.of(str(n).encode()))
    assert len(trust._kept) == 4


def test_keys_of_a_tenant_share_what_was_judged() -> None:
    other = made("other", ca=True)
    assert trust_of([ROOT.der, other.der]) is trust_of([other.der, ROOT.der])
    assert trust_of([ROOT.der]) is not trust_of([other.der])


def test_a_client_satisfies_each_demand() -> None:
    leaf = PresentedCertificate.of(LEAF.der)
    both = [ClientTrust([ROOT.der]), ClientTrust([made("other", ca=True).der])]
    assert is_admitted([], None)
    assert is_admitted(both[:1], leaf)
    assert not is_admitted(both, leaf)
    assert not is_admitted(both[:1], None)


def test_the_end_of_a_connection_says_whose_certificate_counts() -> None:
    header = {b"client-cert": LEAF.headers()["Client-Cert"].encode()}
    own, theirs = PresentedCertificate.of(ROOT.der), PresentedCertificate.of(LEAF.der)
    assert presented_by("10.0.0.1", header, b"", PROXY) == theirs
    # Of a proxy that shows one of its own.
    assert presented_by("10.0.0.1", header, ROOT.der, PROXY) == theirs
    assert presented_by("10.0.0.1", {}, ROOT.der, PROXY) is None
    for peer in ("10.0.0.2", "", "::1", "unix"):
        assert presented_by(peer, header, b"", PROXY) is None
        assert presented_by(peer, header, ROOT.der, PROXY) == own


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_a_proxy_writes_is_judged(given_: bytes, chain: bytes) -> None:
    headers = {b"client-cert": given_, b"client-cert-chain": chain}
    found = presented_by("10.0.0.1", headers, b"", PROXY)
    assert not ClientTrust([ROOT.der]).admits(found)


@given(st.binary(max_size=64), st.integers(0, len(LEAF.der) - 1))
def test_broken_certificates_admit_nobody(noise: bytes, at: int) -> None:
    broken = LEAF.der[:at] + noise + LEAF.der[at + len(noise) :]
    if broken != LEAF.der:
        assert not ClientTrust([ROOT.der]).admits(PresentedCertificate.of(broken))

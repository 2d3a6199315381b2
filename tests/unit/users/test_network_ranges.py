"""Networks as ranges: an address lies in them as it lies in the networks."""

from ipaddress import IPv4Address, IPv6Address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.addresses import ClientAddresses, Network, NetworkRanges

TEXTS = (
    "10.0.0.0/8", "10.1.2.3/32", "11.0.0.0/8", "192.0.2.128/25", "192.0.2.128/26", "2001:db8::/32",
    "2001:db8:1::/48", "::1/128", "::/0",
)  # fmt: skip
NETWORKS = st.sets(st.sampled_from(TEXTS), min_size=1).map(lambda texts: [*map(ip_network, texts)])
ADDRESSES = st.one_of(
    st.sampled_from(["10.1.2.3", "10.255.255.255", "192.0.2.127", "192.0.2.128"]).map(IPv4Address),
    st.sampled_from(["::1", "2001:db8::7", "2001:db9::", "::a01:203"]).map(IPv6Address),
    st.integers(0, 2**32 - 1).map(IPv4Address),
    st.integers(0, 2**128 - 1).map(IPv6Address),
)


@given(NETWORKS, ADDRESSES)
def test_an_address_lies_in_them_as_in_the_networks(
    networks: list[Network], address: IPv4Address | IPv6Address
) -> None:
    ranges = NetworkRanges.of(networks)
    assert ranges is not None
    assert ranges.contain(address) == any(address in one for one in networks)


def test_what_is_no_address_is_nobody() -> None:
    known = ClientAddresses([ip_network("127.0.0.0/8")])
    assert NetworkRanges.of([]) is None
    for peer in ("", "localhost", "1" * 46, "10.0.0.1" + " " * 60, "fe80::1" * 9):
        assert known.client(peer, {}) is None
    assert str(known.client("fe80::1%eth0", {})) == "fe80::1"
    assert str(known.client("::ffff:10.0.0.1", {})) == "10.0.0.1"
    behind = {b"x-forwarded-for": b"203.0.113.9, 198.51.100.1"}
    assert str(known.client("127.0.0.1", behind)) == "198.51.100.1"
    assert str(known.client("10.0.0.1", behind)) == "10.0.0.1"


def test_a_port_that_a_proxy_adds_is_no_part_of_the_address() -> None:
    """It made each client one of the proxy's own network, which a list may have."""
    known = ClientAddresses([ip_network("127.0.0.0/8")])
    for written, address in (
        (b"198.51.100.1:4711", "198.51.100.1"),
        (b"[2001:db8::7]:4711", "2001:db8::7"),
        (b"[2001:db8::7]", "2001:db8::7"),
        (b"2001:db8::7", "2001:db8::7"),
        (b"::1", "::1"),
        # None that a client can have, so that it is the proxy's.
        (b"198.51.100.1:x", "127.0.0.1"),
        (b"unknown", "127.0.0.1"),
    ):
        given = {b"x-forwarded-for": b"203.0.113.9, " + written}
        assert str(known.client("127.0.0.1", given)) == address, written

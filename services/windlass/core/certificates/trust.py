"""Judgement of a client's certificate by the certificates that a tenant trusts."""

import datetime as dt
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from cryptography import x509
from cryptography.x509 import verification as v
from cryptography.x509.oid import ExtendedKeyUsageOID

from windlass.core import clock
from windlass.core.certificates.presented import MAX_CHAIN, PresentedCertificate

# Judgements that are kept, and how long a refusal is: what is not valid yet may become so.
KEPT, REFUSED_SECONDS = 1024, 10.0
_ANY = v.Criticality.AGNOSTIC


@dataclass(frozen=True, slots=True)
class _Judgement:
    is_admitted: bool
    until: float


class ClientTrust:
    """Certificates that admit who has the key of one, or of one that is signed by it."""

    def __init__(self, certificates: Iterable[bytes]):
        self._pinned = frozenset(certificates)
        self._store = v.Store([x509.load_der_x509_certificate(one) for one in self._pinned])
        self._kept: OrderedDict[bytes, _Judgement] = OrderedDict()

    def admits(self, presented: PresentedCertificate | None) -> bool:
        """Returns True for a certificate that is one of these, or leads to one, and is valid."""
        if presented is None:
            return False
        now = clock.now()
        kept = self._kept.get(presented.digest)
        if kept is None or now >= kept.until:
            kept = self._judge(presented, now)
            self._kept[presented.digest] = kept
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return kept.is_admitted

    def _judge(self, presented: PresentedCertificate, now: float) -> _Judgement:
        at = dt.datetime.fromtimestamp(now, dt.UTC)
        try:
            chain = self._chain(presented, at)
        # Foreign bytes: the parser and the verifier have several errors for them.
        except Exception:
            return _Judgement(is_admitted=False, until=now + REFUSED_SECONDS)
        ends = min(one.not_valid_after_utc for one in chain).timestamp()
        # The last second of a certificate is in it.
        return _Judgement(is_admitted=True, until=ends + 1)

    def _chain(self, presented: PresentedCertificate, at: dt.datetime) -> list[x509.Certificate]:
        """The certificates from the client's to one of these; raises for one that leads to none."""
        leaf = x509.load_der_x509_certificate(presented.leaf)
        if presented.leaf in self._pinned:
            # Its key is the one that was named, whatever else the certificate says.
            if not leaf.not_valid_before_utc <= at <= leaf.not_valid_after_utc:
                raise ValueError("it is not valid now")
            return [leaf]
        verifier = (
            v.PolicyBuilder()
            .store(self._store)
            .time(at)
            .max_chain_depth(MAX_CHAIN)
            .extension_policies(ca_policy=_AUTHORITIES, ee_policy=_CLIENTS)
            .build_client_verifier()
        )
        beside = [x509.load_der_x509_certificate(one) for one in presented.chain]
        return verifier.verify(leaf, beside).chain


def is_admitted(demands: Iterable[ClientTrust], presented: PresentedCertificate | None) -> bool:
    """Returns True if a client satisfies each of some demands; True for none."""
    return all(one.admits(presented) for one in demands)


_known: WeakValueDictionary[bytes, ClientTrust] = WeakValueDictionary()


def trust_of(certificates: Iterable[bytes]) -> ClientTrust:
    """The trust in some certificates; one for all keys of a tenant, with what it has judged."""
    ordered = sorted(certificates)
    digests = b"".join(hashlib.sha256(one).digest() for one in ordered)
    digest = hashlib.sha256(digests).digest()
    found = _known.get(digest)
    if found is None:
        found = _known[digest] = ClientTrust(ordered)
    return found


def _signs(_: v.Policy, __: x509.Certificate, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("it is no authority")


def _signs_certificates(_: v.Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("its key signs no certificates")


def _is_of_clients(_: v.Policy, __: x509.Certificate, usage: x509.ExtendedKeyUsage | None) -> None:
    wanted = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
    if usage is not None and not any(one in usage for one in wanted):
        raise ValueError("it is for no clients")


# Private authorities leave out much of what the Web's must have; what they say counts.
_AUTHORITIES = (
    v.ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, _ANY, _signs)
    .may_be_present(x509.KeyUsage, _ANY, _signs_certificates)
)
_CLIENTS = v.ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, _ANY, _is_of_clients
)

"""The listener's own authority and certificate."""

import datetime as dt
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from windlass.sessions.listener import certificates
from windlass.sessions.listener.certificates import own_certificate, server_context

NAMES = {"windlass.example.com", "127.0.0.1", "::1"}


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "k", NAMES)
    before = [path.read_bytes() for path in made]
    assert own_certificate(tmp_path / "k", {"127.0.0.1"}) == made
    assert [path.read_bytes() for path in made] == before
    for path in (tmp_path / "k").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o700


def test_a_new_name_or_a_near_end_makes_it_anew_under_the_same_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key, ca = own_certificate(tmp_path, {"127.0.0.1"})
    first, authority = certificate.read_bytes(), ca.read_bytes()
    own_certificate(tmp_path, NAMES)
    second = certificate.read_bytes()
    assert second != first
    assert ca.read_bytes() == authority
    monkeypatch.setattr(certificates, "RENEW_DAYS", certificates.CERTIFICATE_DAYS + 1)
    own_certificate(tmp_path, NAMES)
    assert certificate.read_bytes() != second
    server_context(certificate, key)


def test_clients_trust_it_by_name(tmp_path: Path) -> None:
    """Also those that hold certificates to the letter, as newer Pythons do."""
    certificate, key, ca = own_certificate(tmp_path, NAMES)
    client = ssl.create_default_context(cafile=str(ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in NAMES:
        shake(server_context(certificate, key), client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server_context(certificate, key), client, "other.example.com")


def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    certificate, key, _ = own_certificate(tmp_path, NAMES)
    certificate.write_text("nonsense")
    own_certificate(tmp_path, NAMES)
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    assert found.not_valid_after_utc > dt.datetime.now(dt.UTC) + dt.timedelta(days=300)
    server_context(certificate, key)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A handshake in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(up, down, server_side=True)
    ours = client.wrap_bio(down, up, server_hostname=name)
    done: set[object] = set()
    while len(done) < 2:
        for side in (ours, theirs):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass

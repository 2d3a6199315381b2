from pathlib import Path

import pytest

from windlass.core import config
from windlass.core.config import Settings
from windlass.core.config.check import check, check_files
from windlass.core.ids import new_id
from windlass.targets import MODULES, expand, missing_peers


def test_flags_win_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "windlass.yaml"
    file.write_text("http: {port: 1111, host: localhost}\nlog_level: ERROR\n")
    assert config.load(file).http.port == 1111
    monkeypatch.setenv("WINDLASS_HTTP__PORT", "2222")
    loaded = config.load(file)
    assert (loaded.http.port, loaded.http.host) == (2222, "localhost")
    assert config.load(file, {"http.port": 3333}).http.port == 3333


def test_weights_are_for_ids_as_they_are_made() -> None:
    organization, project = new_id("org-"), new_id("proj_")
    found = config.load(None, {"limits.weights": {organization: 2, project: 3}})
    assert found.limits.weights == {organization: 2, project: 3}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("htp: {}", "htp"),
        ("http: {prot: 1}", "http.prot"),
        ("http: {port: 70000}", "http.port"),
        ("auth: {key_prefix: 'Bad Prefix'}", "auth.key_prefix"),
        # A title, where an id belongs.
        ("limits: {weights: {Harbor: 4}}", "limits.weights.Harbor"),
        ("limits: {weights: {proj_4f1cK2mQ: 0}}", "limits.weights.proj_4f1cK2mQ"),
        ("agent: {vllm_flags: ['--trust-remote-code']}", "agent.vllm_flags.0"),
        # `datasets` takes them for a pattern, and finds no training data.
        ("data_dir: '/srv/windlass [1]'", "data_dir"),
        # Every message about the store would show them.
        ("objects: {endpoint_url: 'http://me:secret@s3.example'}", "objects.endpoint_url"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "windlass.yaml"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        config.load(file)
    assert key in str(caught.value)
    assert "secret" not in str(caught.value)


def test_mail_needs_a_sender_an_address_of_links_and_tls() -> None:
    given = {"mail.host": "smtp.example.com", "mail.tls": "none"}
    errors = [found.key for found in check(config.load(None, given)) if found.level == "error"]
    assert errors == ["mail.sender", "http.public_url", "mail.tls"]
    given |= {"mail.tls": "starttls", "mail.sender": "windlass@example.com"}
    whole = config.load(None, given | {"http.public_url": "https://windlass.example.com"})
    assert [found for found in check(whole) if found.level == "error"] == []


def test_only_loopback_goes_without_tls() -> None:
    open_door = config.load(None, {"http.host": "0.0.0.0"})
    assert [f.key for f in check(open_door) if f.level == "error"] == ["http.tls"]
    for host in ("127.0.0.1", "::1", "localhost"):
        closed = config.load(None, {"http.host": host})
        assert not [f for f in check(closed) if f.level == "error"]


def test_separate_targets_need_a_shared_database() -> None:
    found = check(config.load(None, {"targets": ["jobs"]}))
    assert "database.url" in [f.key for f in found if f.level == "error"]


def test_secrets_do_not_print() -> None:
    loaded = config.load(None, {"database.url": "postgresql://u:hunter2@h/db"})
    assert "hunter2" not in repr(loaded)


def test_a_module_alone_needs_addresses() -> None:
    assert missing_peers(expand(["all"]), []) == []
    missing = missing_peers(expand(["files"]), [])
    assert missing == [("files", "jobs"), ("files", "users")]
    assert missing_peers(expand(["files"]), ["jobs", "users"]) == []
    with pytest.raises(ValueError, match="unknown target"):
        expand(["nonsense"])


def test_every_need_is_a_service() -> None:
    for module in MODULES.values():
        assert all(MODULES[need].service for need in module.needs)


@pytest.mark.parametrize(
    ("listener", "key"),
    [
        ("{listen: 'localhost'}", "listen"),
        ("{listen: '127.0.0.1:70000'}", "listen"),
        ("{listen: '0.0.0.0:6443'}", "public_url"),
        ("{listen: '10.0.0.1:8082', tls: terminated, public_url: 'https://w'}", "tls"),
        ("{listen: '127.0.0.1:8082', tls: terminated}", "public_url"),
        ("{listen: '127.0.0.1:6443', certificate: a.pem}", "key"),
    ],
)
def test_the_kubernetes_listener_is_refused(tmp_path: Path, listener: str, key: str) -> None:
    file = tmp_path / "windlass.yaml"
    file.write_text(f"sessions: {{kubernetes: {listener}}}")
    found = [one.key for one in check(config.load(file)) if one.level == "error"]
    assert found == [f"sessions.kubernetes.{key}"]


@pytest.mark.parametrize(
    "listener",
    [
        "{}",
        "{listen: '127.0.0.1:6443'}",
        "{listen: '[::1]:6443'}",
        "{listen: '0.0.0.0:6443', public_url: 'https://w:6443'}",
        "{listen: 'localhost:8082', tls: terminated, public_url: 'https://w'}",
        "{listen: '10.0.0.1:6443', certificate: a.pem, key: a.key}",
    ],
)
def test_the_kubernetes_listener_is_good(tmp_path: Path, listener: str) -> None:
    file = tmp_path / "windlass.yaml"
    file.write_text(f"sessions: {{kubernetes: {listener}}}")
    assert not [one for one in check(config.load(file)) if one.level == "error"]


def test_a_token_of_tenants_names_files_that_are_there(tmp_path: Path) -> None:
    module = tmp_path / "module.so"
    module.touch()
    tokens = {
        "good": {"module": module},
        "bare": {},
        "wrong": {"module": tmp_path / "none.so", "pin_file": tmp_path / "none"},
    }
    found = check_files(Settings.model_validate({"external_keys": {"tokens": tokens}}))
    assert {one.key for one in found if "tokens" in one.key} == {
        "external_keys.tokens.bare.module",
        "external_keys.tokens.wrong.module",
        "external_keys.tokens.wrong.pin_file",
    }

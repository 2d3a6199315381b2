"""Server and key that a command uses."""

import stat
from pathlib import Path

import pytest

from windlass.cli.framework import context
from windlass.cli.framework.context import LOCAL, Context, Contexts, Flags, resolve
from windlass.cli.framework.failures import USAGE, Problem

STORED = Contexts(
    "work",
    {
        "work": Context("https://work.example", "wl-work", project="proj_w"),
        "home": Context("https://home.example", "wl-home"),
    },
)
NOTHING = Contexts()


def found(
    flags: Flags | None = None,
    environment: dict[str, str] | None = None,
    stored: Contexts = STORED,
) -> tuple[str, str]:
    connection = resolve(flags or Flags(), environment or {}, stored)
    return connection.base_url, connection.api_key


def test_the_current_context_is_the_default() -> None:
    assert found() == ("https://work.example", "wl-work")
    assert resolve(Flags(), {}, STORED).project == "proj_w"


def test_authorities_are_of_the_flag_the_variable_or_the_context() -> None:
    stored = Contexts("work", {"work": Context("https://work.example", "wl-w", ca="/work.pem")})
    environment = {"WINDLASS_CA": "/environment.pem"}
    assert resolve(Flags(), {}, stored).ca == "/work.pem"
    assert resolve(Flags(), environment, stored).ca == "/environment.pem"
    assert resolve(Flags(ca="/flag.pem"), environment, stored).ca == "/flag.pem"
    # Of another server it says nothing.
    assert resolve(Flags(api_key="wl-x", base_url="https://b.example"), {}, stored).ca == ""


def test_a_named_context_beats_the_environment() -> None:
    environment = {"WINDLASS_API_KEY": "wl-env", "WINDLASS_BASE_URL": "https://env.example"}
    assert found(Flags(context="home"), environment) == ("https://home.example", "wl-home")
    assert found(None, {"WINDLASS_CONTEXT": "home"}) == ("https://home.example", "wl-home")


def test_the_environment_beats_the_current_context() -> None:
    environment = {"WINDLASS_API_KEY": "wl-env", "WINDLASS_BASE_URL": "https://env.example"}
    assert found(None, environment) == ("https://env.example", "wl-env")
    assert found(None, {"WINDLASS_API_KEY": "wl-env"}) == ("https://work.example", "wl-env")


def test_flags_beat_everything() -> None:
    flags = Flags(api_key="wl-flag", base_url="https://flag.example")
    assert found(flags, {"WINDLASS_API_KEY": "no", "WINDLASS_BASE_URL": "no"}) == (
        "https://flag.example",
        "wl-flag",
    )
    assert resolve(Flags(project="p"), {"WINDLASS_PROJECT": "no"}, STORED).project == "p"


def test_a_local_servers_owner_key(tmp_path: Path) -> None:
    (tmp_path / "owner.key").write_text("wl-owner\n")
    flags = Flags(data=tmp_path)
    assert found(flags, {"WINDLASS_API_KEY": "wl-env"}) == (LOCAL, "wl-owner")
    with pytest.raises(Problem, match=r"owner\.key") as error:
        found(Flags(data=tmp_path / "none"))
    assert error.value.code == USAGE


def test_a_stored_key_goes_to_no_other_address() -> None:
    for flags in (
        Flags(base_url="https://evil.example"),
        Flags(base_url="https://evil.example", context="home"),
    ):
        with pytest.raises(Problem, match="is for https"):
            found(flags)
    with pytest.raises(Problem, match="is for https"):
        found(None, {"WINDLASS_BASE_URL": "https://evil.example"})
    same = Flags(base_url="https://WORK.example/v1/")
    assert found(same) == ("https://work.example", "wl-work")


def test_openais_variables_are_the_last_resort() -> None:
    environment = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "https://oai.example/v1"}
    assert found(None, environment, NOTHING) == ("https://oai.example/v1", "sk-1")
    assert found(None, environment) == ("https://work.example", "wl-work")


def test_openais_key_goes_to_no_address_that_nobody_named() -> None:
    with pytest.raises(Problem, match="windlass auth login"):
        found(None, {"OPENAI_API_KEY": "sk-1"}, NOTHING)


def test_an_unknown_context_is_named() -> None:
    with pytest.raises(Problem, match=r"'nope' \(work, home\)"):
        found(Flags(context="nope"))


def test_keys_do_not_show_in_representations() -> None:
    connection = resolve(Flags(api_key="wl-hidden"), {}, STORED)
    assert "wl-" not in repr(connection) + repr(STORED) + repr(Flags(api_key="wl-hidden"))


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(context, "path", lambda: tmp_path / "windlass" / "config.yaml")
    return tmp_path / "windlass" / "config.yaml"


def test_contexts_are_stored_for_their_owner_alone(config_file: Path) -> None:
    assert context.load() == NOTHING
    context.save(STORED)
    assert context.load() == STORED
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    config_file.chmod(0o644)
    context.save(NOTHING)
    assert stat.S_IMODE(config_file.stat().st_mode) == 0o600
    assert list(config_file.parent.iterdir()) == [config_file]


@pytest.mark.parametrize(
    "text", ["[", "- a", "contexts: 3", "contexts: {a: {nonsense: 1}}", "contexts: {a: b}"]
)
def test_a_broken_file_is_named_and_left_alone(config_file: Path, text: str) -> None:
    config_file.parent.mkdir()
    config_file.write_text(text)
    with pytest.raises(Problem, match=r"config\.yaml"):
        context.load()
    assert config_file.read_text() == text


def test_files_of_a_server_that_are_no_text_are_named(tmp_path: Path) -> None:
    for name in ("owner.key", "address"):
        (tmp_path / "owner.key").write_text("wl-owner\n")
        (tmp_path / name).write_bytes(b"\xff\xfe")
        with pytest.raises(Problem, match=rf"{name} is not text") as error:
            found(Flags(data=tmp_path))
        assert error.value.code == USAGE

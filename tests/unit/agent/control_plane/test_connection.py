"""No credential travels in clear, and no secret reaches a child."""

import pytest

from windlass.confinement.environment import child_environment
from windlass_agent.control_plane.connection import open_channel


@pytest.mark.parametrize(
    "address",
    ["grpc://example.org:443", "example.org:443", "grpcs://example.org", "http://a:1", ""],
)
def test_an_address_that_is_not_private_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="grpcs"):
        open_channel(address)


@pytest.mark.parametrize(
    "address", ["grpcs://example.org:443", "unix:///run/windlass.sock", "grpc://127.0.0.1:1"]
)
async def test_a_private_one_is_taken(address: str) -> None:
    await open_channel(address).close()


def test_children_see_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WINDLASS_DATABASE__URL", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    environment = child_environment()
    assert "secret" not in environment.values()
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment["PATH"]

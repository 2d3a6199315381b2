"""Folders that adapters are shown to SGLang by; a stand-in of it only says yes or no."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.sglang.keeper import SglangKeeper
from windlass_agent.engines.sglang.server import SglangCommand


class Server:
    """Answers every load with `refused`."""

    def __init__(self) -> None:
        self.refused = ""
        self.shown: list[Path] = []

    async def steer(self, _: str, body: dict[str, Any]) -> str:
        self.shown.append(Path(body["lora_path"]))
        assert json.loads((self.shown[-1] / "adapter_config.json").read_bytes())["lora_alpha"] == 32
        return self.refused


async def test_what_an_earlier_life_or_a_refusal_leaves_is_in_nobodys_way(tmp_path: Path) -> None:
    adapter, shared = tmp_path / "adapter", tmp_path / "engine"
    adapter.mkdir()
    config = {"use_rslora": True, "lora_alpha": 8, "r": 16}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (adapter / "adapter_model.safetensors").touch()
    shared.mkdir()
    server = Server()
    for _ in range(2):
        # The folder of a pod is there yet when its program begins anew.
        keeper = SglangKeeper(SglangCommand(words=(), folder=shared), model="m", max_adapters=1)
        keeper._server = cast("Any", server)
        await keeper.load("a", adapter)
        assert keeper.adapters == {"a": adapter}
    assert server.shown == [shared / "adapter-1"] * 2
    server.refused = "no room"
    with pytest.raises(KeptFailure, match="no room"):
        await keeper.load("b", adapter)
    assert list(shared.iterdir()) == [shared / "adapter-1"]
    assert (adapter / "adapter_model.safetensors").exists()

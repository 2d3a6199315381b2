"""An adapter changes what llama.cpp says as it changes what PEFT says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from tests.support.environments.llama_server import llama_server
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.toy_model import make_adapter, make_model
from transformers import AutoModelForCausalLM

from windlass_agent.engines.llamacpp.server import LlamaServer, ServerSettings
from windlass_agent.gguf import adapter_file, model_file
from windlass_agent.gguf.layout import Unsupported

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]
IDS = [7, 30, 99, 201, 5, 64, 8, 311]
# Probabilities are said before the bias. A drawn token may be a part of a character, of which
# llama.cpp says none.
ASKED = {"prompt": IDS, "n_predict": 1, "n_probs": 5, "logit_bias": [["a", 1000]]}
KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "every layer": {"target_modules": "all-linear", "r": 8, "lora_alpha": 16},
    "head": {"target_modules": ["lm_head"], "lora_alpha": 8},
    "rslora": {"use_rslora": True, "r": 16, "lora_alpha": 16},
}


def expected(base: Path, adapter: Path | None) -> torch.Tensor:
    """Log-probabilities of the next token: [vocabulary]."""
    network = AutoModelForCausalLM.from_pretrained(base)
    if adapter is not None:
        network = PeftModel.from_pretrained(network, adapter)
    with torch.no_grad():
        logits = network.eval()(torch.tensor([IDS])).logits[0, -1]
    return torch.log_softmax(logits.float(), -1)


async def test_llama_cpp_says_what_peft_says(tmp_path: Path) -> None:
    program = llama_server()
    base = make_model(tmp_path / "base")
    with reachable_folder() as folder:
        (model,) = model_file.write(base, folder / "model.gguf", name="toy")
        files = []
        for number, (name, options) in enumerate(KINDS.items()):
            made = make_adapter(base, tmp_path / name, seed=number, **options)
            target = folder / f"{number}.gguf"
            adapter_file.write(made, base, target)
            files.append((name, target))
        settings = ServerSettings(
            program=program, model=model, folder=folder, context=256, concurrency=1, cpus=1
        )
        server = await LlamaServer.start(settings, 1, files)
        try:
            plain = expected(base, None)
            for used in (None, *KINDS):
                lora = [{"id": at, "scale": float(name == used)} for at, name in enumerate(KINDS)]
                asked = {**ASKED, "lora": lora}
                async with server.session.post("/completion", json=asked) as response:
                    answer = await response.json()
                (said,) = answer["completion_probabilities"]
                wanted = expected(base, tmp_path / used if used else None)
                for token in said["top_logprobs"]:
                    assert token["logprob"] == pytest.approx(float(wanted[token["id"]]), abs=0.05)
                assert used is None or not torch.allclose(wanted, plain, atol=0.5)
        finally:
            await server.end()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"bias": "lora_only"}, "biases"),
        ({"target_modules": ["embed_tokens"]}, "not a LoRA"),
    ],
)
def test_what_a_file_cannot_hold_is_refused(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    base = make_model(tmp_path / "base")
    adapter = make_adapter(base, tmp_path / "adapter", seed=3, **wrong)
    with pytest.raises(Unsupported, match=said):
        adapter_file.write(adapter, base, tmp_path / "adapter.gguf")

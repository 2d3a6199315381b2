"""A model over an engine's memory has no weights of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
MIB = 2**20
# The engine's side is a file of zeros; the other trains all of it.
PROGRAM = """
import re, sys
from pathlib import Path
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.settings import apollo_mini
from windlass_vllm.training.viewed_model import view_model
from windlass_vllm.weights.handles import WEIGHTS, Handle, WeightHandles
from windlass_vllm.weights.private_folder import OwnFolder
from windlass_vllm.weights.shared_files import open_shared, place

def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]) * 1024

config = AutoConfig.for_model("llama", vocab_size=500, hidden_size=1024, intermediate_size=2048,
    num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8)
with torch.device("meta"):
    shapes = {name: tuple(one.shape) for name, one in
              AutoModelForCausalLM.from_config(config).named_parameters()}
offsets, size = place({name: 4 * torch.Size(one).numel() for name, one in shapes.items()})
found = tuple(Handle(name, "float32", one, torch.empty(one, device="meta").stride(), offsets[name],
    one[0]) for name, one in shapes.items())
handles = WeightHandles(generation=1, device="cpu", size=size, context=64, packed={}, prefixes={},
    config=config.to_json_string(use_diff=False), handles=found)
own = OwnFolder(Path(sys.argv[1]))
with own.opened(WEIGHTS, new=True) as descriptor:
    import os
    os.posix_fallocate(descriptor, 0, size)
torch.set_num_threads(1)
torch.ones(1).requires_grad_().sum().backward()
before = anonymous()
model = view_model(handles, open_shared(own, handles))
seen = anonymous()
with torch.no_grad():
    for one in model.parameters():
        torch.nn.init.normal_(one, std=0.02)
optimizer = InBackwardOptimizer(model.named_parameters(), apollo_mini(1e-3))
ids = torch.arange(2, 18)[None]
for _ in range(2):
    optimizer.backward(model(input_ids=ids, labels=ids).loss)
print(size, seen - before, anonymous() - before)
own.close()
"""


@pytest.mark.torch
def test_training_takes_no_second_copy(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    path = {"PYTHONPATH": str(ROOT / "plugin"), "PATH": "", "MALLOC_TRIM_THRESHOLD_": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=path, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    size, viewed, trained = map(int, done.stdout.split())
    assert size > 250 * MIB
    assert viewed < 20 * MIB
    # The bound of private memory: states, the largest gradient, activations and 150 MiB.
    assert trained < 150 * MIB

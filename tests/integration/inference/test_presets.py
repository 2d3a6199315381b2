"""From a preset to an engine: what an import is given, what is shown, and what an agent is told."""

import json
from pathlib import Path

from tests.integration.inference.test_inference import serving, want
from tests.integration.models.test_models import FILES

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.engine_arguments import EngineArguments, from_message, to_message
from windlass.modelfiles.presets import shipped

MINE = {
    "about": "Of ours.",
    "types": ["gpt2"],
    "arguments": {"builtin": {"context_length": 256, "max_concurrency": 3}},
}
EMBEDDER = {"model_type": "bert", "architectures": ["BertModel"]}


def files(**config: object) -> dict[str, bytes]:
    return {**FILES, "config.json": json.dumps(config).encode()}


async def test_a_preset_is_given_shown_and_told_and_what_is_set_wins(
    database_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "presets"
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps(MINE))
    async with serving(database_url, tmp_path, presets=str(folder)) as (platform, _):
        tenant = platform.tenant()
        plain = await platform.import_model("plain", files(model_type="opt"), **tenant)
        assert not plain.HasField("preset")
        llama = await platform.import_model("tiny", FILES, **tenant)
        assert llama.preset.name == "llama"
        assert tuple(llama.preset.lora_targets) == shipped()["llama"].lora_targets
        embedder = await platform.import_model("bge", files(**EMBEDDER), **tenant)
        assert embedder.preset.name == "encoder-embedder"

        asked = pb.PutServingRequest(model="bge", engine="vllm")
        shown = await platform.inference.PutServing(asked, **tenant)
        assert shown.preset == "encoder-embedder"
        assert from_message(shown.derived_arguments) == EngineArguments(
            dtype="float32", task="embed"
        )
        asked.arguments.CopyFrom(to_message(EngineArguments(dtype="bfloat16")))
        shown = await platform.inference.PutServing(asked, **tenant)
        assert from_message(shown.derived_arguments) == EngineArguments(task="embed")

        agent = await platform.live_cluster()
        await platform.import_model("ours", files(model_type="gpt2"), **tenant)
        await want(platform, "ours")
        engine = await agent.next_engine("ours")
        assert from_message(engine.engine.arguments) == EngineArguments(
            context_length=256, max_concurrency=3
        )
        owner = EngineArguments(context_length=128)
        asked = pb.PutServingRequest(model="ours", arguments=to_message(owner))
        await platform.inference.PutServing(asked, **tenant)

        changed = await agent.next_engine(
            "ours", lambda one: one.engine.arguments.context_length == 128
        )
        assert changed.engine.arguments.max_concurrency == 3

"""vLLM shown images, in its build for CPUs: it says what transformers says of the same ones."""

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.support.agents.engine_machine import machine, workload
from tests.support.agents.file_store import file_store
from tests.support.environments.postgres import reachable_folder
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.factories.vision import IMAGE, make_vision
from tests.support.processes.engine import RunningEngine
from transformers import AutoProcessor, Idefics3ForConditionalGeneration

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments, to_message
from windlass.gateway.inference.images.fetching import ImageFetcher
from windlass.gateway.inference.images.inlining import Images
from windlass.inference_api.images.parts import image_places
from windlass_agent.engines.registry import EnginePrograms, engines

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.long, pytest.mark.timeout(1800)]
CHATS = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
TOKENS, QUESTION = 12, "what is it?"
FORMATS = {"png": "red", "jpeg": "blue", "webp": "green", "gif": "white"}
ARGUMENTS = EngineArguments(
    context_length=384,
    max_concurrency=2,
    dtype="float32",
    eager=True,
    kv_cache_bytes=2**28,
    max_adapter_rank=16,
)


def painted(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (100, 80), FORMATS[kind]).save(file, kind)
    return file.getvalue()


def greedy(folder: Path, image: bytes) -> tuple[str, int]:
    """What transformers says of an image, and the tokens of its prompt."""
    processor: Any = AutoProcessor.from_pretrained(folder)
    network = Idefics3ForConditionalGeneration.from_pretrained(folder).eval()
    said = [{"role": "user", "content": f"{IMAGE}\n{QUESTION}"}]
    text = processor.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    shown = processor(text=text, images=Image.open(io.BytesIO(image)), return_tensors="pt")
    with torch.no_grad():
        found = network.generate(
            **shown, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False
        )
    length = shown["input_ids"].shape[1]
    return _whole(processor.tokenizer.decode(found[0, length:], skip_special_tokens=True)), length


def _whole(text: str) -> str:
    """The text without the beginning of a character that a next token would have ended."""
    return text.rstrip("\ufffd")


def asked(url: str) -> bytes:
    shown = {"type": "image_url", "image_url": {"url": url}}
    content = [{"type": "text", "text": QUESTION}, shown]
    bounds = {"max_tokens": TOKENS, "min_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": "toy", "messages": messages, **bounds}).encode()


async def inlined(image: bytes, kind: str, salt: str) -> bytes:
    """A request as the gateway writes it for an organization of this salt."""
    body = asked(f"data:image/{kind};base64,{base64.b64encode(image).decode()}")
    fetcher = ImageFetcher((), ())
    places = image_places(json.dumps(json.loads(body)["messages"]).encode())
    try:
        images = Images(fetcher)
        return (await images.inline(images.room.of("proj"), "proj", body, places, salt)).body
    finally:
        await fetcher.close()


async def test_it_says_what_transformers_says_and_fetches_nothing(tmp_path: Path) -> None:
    kinds = engines(EnginePrograms(vllm_python=await asyncio.to_thread(vllm_python)))
    model = make_vision(tmp_path / "mv-toy")
    with file_store(tmp_path) as store, reachable_folder() as home, turn():
        async with machine(home, kinds=kinds, gpus=()) as host:
            await host.driver.apply(workload(store, kind="vllm", arguments=to_message(ARGUMENTS)))
            status = await host.reaches(pb.PHASE_RUNNING)
            assert status.capabilities.vision
            with RunningEngine(Path(), "toy", status.endpoint, 0, 0.0).http() as http:
                told = {}
                for kind in FORMATS:
                    # Of two organizations: what the first has shown changes nothing for the other.
                    for salt in ("a", "b"):
                        body = await inlined(painted(kind), kind, salt)
                        answer = http.post(
                            CHATS, content=body, headers=JSON, timeout=300
                        ).raise_for_status()
                        said, used = answer.json()["choices"][0], answer.json()["usage"]
                        told[kind, salt] = _whole(said["message"]["content"]), used["prompt_tokens"]
                for url in ("https://example.com/x.png", f"file://{model}/config.json"):
                    assert http.post(CHATS, content=asked(url), headers=JSON, timeout=60).is_error
    for (kind, _), found in told.items():
        assert found == greedy(model, painted(kind))
    assert len({text for text, _ in told.values()}) == len(FORMATS)

"""Cost of structured output: tokens per second with and without a schema, in one engine.

The model is random and of some 30 M parameters; its tokenizer has 32,000 tokens or as many as our
own sources give, since a mask is made over all of them.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from openai import AsyncOpenAI
from tests.bench.figures import Figure, Options, at_least, plain
from tests.support.factories.toy_model import TEMPLATE
from tests.support.processes.engine import running_engine
from tokenizers import Tokenizer, trainers
from tokenizers.decoders import ByteLevel as Decoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[4]
STREAMS = 8
WORD = {"type": "string", "pattern": "^[a-z ]{40,80}$"}
ITEM = {
    "type": "object",
    "properties": {"name": WORD, "kind": {"enum": ["a", "b"]}, "size": {"type": "integer"}},
    "required": ["name", "kind", "size"],
    "additionalProperties": False,
}
# Long enough that only max_tokens ends it.
SCHEMA = {"type": "array", "items": ITEM, "minItems": 100}
HELD = {"type": "json_schema", "json_schema": {"name": "items", "schema": SCHEMA}}


async def measure(options: Options) -> list[Figure]:
    """Medians of rounds that take turns."""
    rounds, tokens = (1, 40) if options.quick else (5, 150)
    free, held = [], []
    with TemporaryDirectory() as folder, running_engine(_model(Path(folder)), cold=True) as engine:
        async with engine.client() as client:
            await _rate(client, 8, response_format=HELD)
            for _ in range(rounds):
                free.append(await _rate(client, tokens, extra_body={"ignore_eos": True}))
                held.append(await _rate(client, tokens, response_format=HELD))
    ratio = statistics.median(after / before for before, after in zip(free, held, strict=True))
    return [
        at_least("structured_rate", ratio, "x the rate without a schema", 0.8),
        plain("structured_tokens", statistics.median(held), "tokens/s").beside(
            "without", statistics.median(free)
        ),
    ]


async def _rate(client: AsyncOpenAI, tokens: int, **more: Any) -> float:
    async def one() -> int:
        answer = await client.chat.completions.create(
            model="toy",
            messages=[{"role": "user", "content": "List some."}],
            temperature=0,
            max_tokens=tokens,
            **more,
        )
        return answer.usage.completion_tokens if answer.usage else 0

    began = time.perf_counter()
    made = sum(await asyncio.gather(*(one() for _ in range(STREAMS))))
    return made / (time.perf_counter() - began)


def _model(folder: Path) -> Path:
    inner = Tokenizer(BPE())
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    inner.decoder = Decoder()
    trainer = trainers.BpeTrainer(
        vocab_size=32_000,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(_sources(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _sources() -> Iterator[str]:
    for kind in ("services", "agent", "tests", "docs"):
        for path in sorted((ROOT / kind).rglob("*")):
            if path.suffix in (".py", ".md"):
                yield path.read_text()

"""The toy model, trained until it knows when to call a tool and how to use its answer."""

from pathlib import Path
from typing import Any

import torch
from tests.support.factories.toy_model import make_model
from transformers import AutoModelForCausalLM, AutoTokenizer

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
ASKED = "What is the weather in Rome?"
BOTH = "And in Rome and Paris?"
GREETED = "Hello!"
GREETING = "Hello, fox!"
TOLD = "It is sunny."


def make_tool_model(path: Path) -> Path:
    """Writes a model folder whose greedy answers to the conversations below never vary."""
    make_model(path, hidden=128)
    tokenizer = AutoTokenizer.from_pretrained(path)
    network = AutoModelForCausalLM.from_pretrained(path)
    # Small weights learn; `make_model`'s wide ones are for variety.
    network.init_weights()
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.05)
    lessons = [_lesson(tokenizer, messages) for messages in _conversations()]
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0)
    for _ in range(400):
        loss = torch.stack(
            [network(input_ids=ids, labels=labels).loss for ids, labels in lessons]
        ).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if float(loss.detach()) < 0.1:
            break
    network.save_pretrained(path)
    return path


def _conversations() -> list[list[dict[str, Any]]]:
    result = {"role": "tool", "tool_call_id": "x", "content": "sunny"}
    called = [{"role": "user", "content": ASKED}, _calls("Rome")]
    return [
        called,
        [*called, result, {"role": "assistant", "content": TOLD}],
        [{"role": "user", "content": BOTH}, _calls("Rome", "Paris")],
        [{"role": "user", "content": GREETED}, {"role": "assistant", "content": GREETING}],
    ]


def _calls(*cities: str) -> dict[str, Any]:
    calls = [{"function": {"name": "weather", "arguments": {"city": city}}} for city in cities]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _lesson(tokenizer: Any, messages: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    def ids(some: list[dict[str, Any]], *, prompt: bool) -> list[int]:
        text = tokenizer.apply_chat_template(
            some, tools=[WEATHER], tokenize=False, add_generation_prompt=prompt
        )
        return list(tokenizer.encode(text, add_special_tokens=False))

    whole, asked = ids(messages, prompt=False), len(ids(messages[:-1], prompt=True))
    return torch.tensor([whole]), torch.tensor([[-100] * asked + whole[asked:]])

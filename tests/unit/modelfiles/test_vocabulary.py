"""Vocabularies by the files of models, and the drafts that suit them."""

import json
from typing import Any

import pytest

from windlass.modelfiles.vocabulary import BOUNDS, Vocabulary, draft_objection, vocabulary

CONFIG = {"model_type": "llama", "vocab_size": 4}
WORDS = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}, "added_tokens": []}
SCORED = {"model": {"type": "Unigram", "vocab": [["a", -1.5], ["b", 0]]}, "added_tokens": []}


def read(config: Any, tokenizer: Any) -> Vocabulary:
    return vocabulary(json.dumps(config).encode(), json.dumps(tokenizer).encode())


def numbered(count: int, *, size: int | None = None, others: int = 0) -> Vocabulary:
    """A vocabulary whose first `others` tokens are its own."""
    words = (f"other-{one}" if one < others else f"token-{one}" for one in range(count))
    return Vocabulary(size or count, dict(enumerate(words)))


@pytest.mark.parametrize("tokenizer", [WORDS, SCORED])
def test_tokens_have_numbers_and_added_ones_too(tokenizer: Any) -> None:
    added = tokenizer | {"added_tokens": [{"id": 2, "content": "<end>", "special": True}]}
    assert read(CONFIG, added) == Vocabulary(4, {0: "a", 1: "b", 2: "<end>"})
    # Of a model that sees, the part that speaks.
    assert read({"text_config": CONFIG}, tokenizer).size == 4


@pytest.mark.parametrize(
    ("config", "tokenizer", "said"),
    [
        ({}, WORDS, "config.json has no vocab_size"),
        ([], WORDS, "config.json has no vocab_size"),
        ({"vocab_size": True}, WORDS, "config.json has no vocab_size"),
        ({"vocab_size": -1}, WORDS, "config.json has no vocab_size"),
        (CONFIG, {}, "tokenizer.json has no vocabulary"),
        (CONFIG, {"model": {"vocab": {"a": "0"}}}, "tokenizer.json has no vocabulary"),
        (CONFIG, {"model": {"vocab": 7}}, "'vocab' that is not a list of tokens"),
    ],
)
def test_files_that_do_not_say_it_are_named(config: Any, tokenizer: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read(config, tokenizer)
    for nested in (b"[" * 100_000, b"{"):
        with pytest.raises(ValueError):
            vocabulary(nested, nested)
        with pytest.raises(ValueError, match="is not a tokenizer in JSON"):
            vocabulary(json.dumps(CONFIG).encode(), nested)


def test_a_vocabulary_that_is_too_much_to_read_is_refused() -> None:
    many = b'{"model":{"vocab":{' + b",".join([b'"a":0'] * (2**21 + 2)) + b"}}}"
    with pytest.raises(ValueError, match="more 'vocab' than a tokenizer may have"):
        vocabulary(json.dumps(CONFIG).encode(), many)


def test_the_same_vocabulary_suits_every_kind() -> None:
    for bounds in BOUNDS.values():
        assert not draft_objection(numbered(1000), numbered(1000), bounds)


def test_another_is_refused_with_the_numbers() -> None:
    assert draft_objection(numbered(1000), numbered(1001), BOUNDS["vllm"]) == (
        "its vocabulary has 1001 tokens, that of the model 1000"
    )
    assert not draft_objection(numbered(1000), numbered(1128), BOUNDS["llamacpp"])
    assert "1129 tokens" in draft_objection(numbered(1000), numbered(1129), BOUNDS["llamacpp"])
    assert draft_objection(numbered(1000), numbered(1000, others=1), BOUNDS["llamacpp"]) == (
        "of the model's 1000 tokens 999 are the same in it, and 1 of its numbers stand for "
        "another token"
    )
    # Names of tokens that a family reserves differ from model to model.
    assert not draft_objection(numbered(1000), numbered(1000, others=256), BOUNDS["vllm"])
    assert "257" in draft_objection(numbered(1000), numbered(1000, others=257), BOUNDS["vllm"])


def test_one_of_the_same_size_with_few_tokens_is_another() -> None:
    padded = numbered(400, size=1000)
    assert "400 are the same" in draft_objection(numbered(1000), padded, BOUNDS["vllm"])

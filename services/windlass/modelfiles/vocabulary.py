"""The vocabulary of a model: which number stands for which token, as its files say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from windlass.modelfiles.documents import check_document
from windlass.modelfiles.footprint import text_config
from windlass.modelfiles.refusal import RefusedDocument
from windlass.modelfiles.sizes import refuse_many_values

CONFIG, TOKENIZER = "config.json", "tokenizer.json"


class _Added(msgspec.Struct):
    id: int
    content: str


class _Encoding(msgspec.Struct):
    # By token, or a list of tokens with their scores (Unigram).
    vocab: dict[str, int] | list[tuple[str, float]]


class _Vocabularies(msgspec.Struct):
    model: _Encoding
    added_tokens: list[_Added] = []


_decode = msgspec.json.Decoder(_Vocabularies).decode


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Numbers from 0 to `size`, and the tokens of those that have one."""

    size: int
    tokens: Mapping[int, str]


def vocabulary(config: bytes, tokenizer: bytes) -> Vocabulary:
    """Reads config.json and tokenizer.json; raises ValueError for what does not say it.

    What no import has looked at may be too much to read.
    """
    try:
        refuse_many_values(CONFIG, config)
        check_document(TOKENIZER, tokenizer, known=())
    except RefusedDocument as refusal:
        raise ValueError(refusal.message) from refusal
    try:
        document = json.loads(config)
    except RecursionError as error:
        raise ValueError(f"{CONFIG} is nested too deeply") from error
    size = text_config(document).get("vocab_size") if isinstance(document, Mapping) else None
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"{CONFIG} has no vocab_size")
    try:
        found = _decode(tokenizer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{TOKENIZER} has no vocabulary") from error
    words = found.model.vocab
    if isinstance(words, dict):
        tokens = {number: token for token, number in words.items()}
    else:
        tokens = {number: token for number, (token, _) in enumerate(words)}
    return Vocabulary(size, tokens | {one.id: one.content for one in found.added_tokens})


@dataclass(frozen=True, slots=True)
class VocabularyBounds:
    """Bounds of the difference of a draft's vocabulary: numbers more or less, and other tokens."""

    sizes: int
    tokens: int


# vLLM compares the sizes alone (v1/spec_decode/draft_model.py); of so many tokens that a family
# reserves, some have names in one model and not in the next. llama.cpp compares the tokens too, and
# goes on without a draft that it does not take (common/speculative.cpp).
BOUNDS = {"llamacpp": VocabularyBounds(128, 0), "vllm": VocabularyBounds(0, 256)}


def draft_objection(model: Vocabulary, draft: Vocabulary, bounds: VocabularyBounds) -> str:
    """Returns why a draft does not fit a model's vocabulary, with the numbers; empty if it does."""
    if abs(model.size - draft.size) > bounds.sizes:
        return f"its vocabulary has {draft.size} tokens, that of the model {model.size}"
    both = model.tokens.keys() & draft.tokens.keys()
    differing = sum(model.tokens[number] != draft.tokens[number] for number in both)
    only = len(model.tokens.keys() ^ draft.tokens.keys())
    if differing > bounds.tokens or only > bounds.sizes + bounds.tokens:
        return (
            f"of the model's {len(model.tokens)} tokens {len(both) - differing} are the same in "
            f"it, and {differing} of its numbers stand for another token"
        )
    return ""

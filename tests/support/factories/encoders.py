"""Random encoders of 0.1 M parameters: an embedder by sentence-transformers' files, a reranker."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, BertModel
from transformers import PreTrainedTokenizerFast as FastTokenizer

CONTEXT = 64
_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# What a cross-encoder of sentence-transformers says whose scores are its network's values.
RAW_SCORES = {"activation_fn": "torch.nn.modules.linear.Identity"}
_WORDS = (
    "a",
    "red",
    "green",
    "blue",
    "cat",
    "dog",
    "fox",
    "sat",
    "on",
    "the",
    "mat",
    "and",
    "slept",
    "what",
    "did",
    "say",
    "it",
)
_SIZE = 64


def make_embedder(
    path: Path,
    *,
    mode: str = "cls_token",
    normalize: bool = True,
    dense: int = 0,
    modules: bool = True,
) -> Path:
    """Writes an embedder; with `dense` a layer makes vectors of so many numbers of its own."""
    tokenizer, config = make_tokenizer(), _config()
    torch.manual_seed(3)
    BertModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    if not modules:
        return path
    return write_pooling(path, mode, _SIZE, dense=dense, normalize=normalize)


def write_pooling(path: Path, mode: str, size: int, *, normalize: bool, dense: int = 0) -> Path:
    """Writes the steps after a network whose hidden states have a size."""
    steps = [("Transformer", ""), ("Pooling", "1_Pooling")]
    _write(path / "1_Pooling", {"word_embedding_dimension": size, f"pooling_mode_{mode}": True})
    if dense:
        steps.append(("Dense", "2_Dense"))
        tanh = "torch.nn.modules.activation.Tanh"
        sizes = {"in_features": size, "out_features": dense}
        _write(path / "2_Dense", {**sizes, "bias": True, "activation_function": tanh})
        layer = {"linear.weight": torch.randn(dense, size), "linear.bias": torch.randn(dense)}
        save_file(layer, path / "2_Dense" / "model.safetensors")
    if normalize:
        steps.append(("Normalize", f"{len(steps)}_Normalize"))
    listed = [
        {
            "idx": index,
            "name": str(index),
            "path": folder,
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, (kind, folder) in enumerate(steps)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    return path


def make_reranker(path: Path, **words: object) -> Path:
    """Writes a cross-encoder, which reads a query and a text; `words` stand in its config.json."""
    config = _config()
    config.num_labels = 1
    config.update(words)
    torch.manual_seed(4)
    BertForSequenceClassification(config).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
    return path


def _write(folder: Path, config: dict[str, object]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))


def _config() -> BertConfig:
    return BertConfig(
        vocab_size=len(_MARKS) + len(_WORDS),
        hidden_size=_SIZE,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=CONTEXT,
        # Wide, so that texts differ by more than the last bits of a float.
        initializer_range=0.3,
    )


def make_tokenizer() -> FastTokenizer:
    """A tokenizer of a few words."""
    vocabulary = {word: number for number, word in enumerate((*_MARKS, *_WORDS))}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return FastTokenizer(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=CONTEXT,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )

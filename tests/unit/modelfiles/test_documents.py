"""Validation of model documents against every class in the installed transformers and PEFT."""

import dataclasses
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers.models
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from transformers import BertTokenizer, PreTrainedTokenizerBase

from windlass.modelfiles import RefusedDocument, check_document, check_folder, is_document

KNOWN = {"config.json", "tokenizer.json", "model.safetensors"}
ELSEWHERE = "../../owner.key"
NEAR = "owner.key"
# Parameters of tokenizers that are text, of which none is opened.
TEXTS = {"token", "tokens"}


def refused(path: str, document: Any) -> bool:
    try:
        check_document(path, json.dumps(document).encode(), known=KNOWN)
    except RefusedDocument:
        return True
    return False


def tokenizers() -> Iterator[type]:
    """Every tokenizer class of transformers whose own dependencies are installed."""
    for package in pkgutil.iter_modules(transformers.models.__path__):
        folder = Path(transformers.models.__path__[0], package.name)
        for path in folder.glob("tokenization_*.py"):
            try:
                importlib.import_module(f"transformers.models.{package.name}.{path.stem}")
            except (ImportError, NameError):
                # Without sentencepiece and the like nothing can load it here either.
                continue
    pending = [PreTrainedTokenizerBase]
    while pending:
        kind = pending.pop()
        yield kind
        pending += kind.__subclasses__()


def parameters() -> dict[str, set[str]]:
    """Each argument of a constructor, with the classes that take it."""
    found: dict[str, set[str]] = {}
    for kind in tokenizers():
        for parent in kind.__mro__:
            if "__init__" in vars(parent):
                for parameter in inspect.signature(vars(parent)["__init__"]).parameters:
                    found.setdefault(parameter, set()).add(kind.__name__)
    for special in ("self", "args", "kwargs"):
        found.pop(special, None)
    return found


def test_no_argument_of_a_tokenizer_can_name_a_file() -> None:
    found = parameters()
    assert len(found["vocab"]) > 40, "the walk sees the classes"
    for name, classes in found.items():
        is_text = name.rpartition("_")[2] in TEXTS or name == "chat_template"
        for file in (ELSEWHERE, NEAR, "/etc/passwd", "a/b.json"):
            for path in ("tokenizer_config.json", "sub/tokenizer_config.json"):
                assert is_text or refused(path, {name: file}), (name, file, classes)
            assert is_text or refused("special_tokens_map.json", {name: file}), (name, classes)


def test_arguments_that_are_files_take_no_word_and_no_descriptor() -> None:
    for name in parameters():
        if name in ("vocab", "merges", "entity_vocab") or name.endswith("_file"):
            assert refused("tokenizer_config.json", {name: "credential"}), name
            assert refused("special_tokens_map.json", {name: "credential"}), name
    assert refused("tokenizer_config.json", {"vocab": 5})


def test_no_field_of_a_peft_configuration_can_name_a_file() -> None:
    for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items():
        for each in dataclasses.fields(config):
            document = {"peft_type": str(kind), each.name: ELSEWHERE}
            is_text = each.name.endswith("_tokens")
            assert is_text or refused("adapter_config.json", document), (kind, each.name)
            if each.name.endswith(("_path", "_file")) and each.name != "base_model_name_or_path":
                assert refused("adapter_config.json", document | {each.name: NEAR}), each.name


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("tokenizer_config.json", {"init_inputs": ["x"]}),
        ("tokenizer_config.json", {"gguf_file": "x.gguf"}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.1.0.json/../../x"]}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.1.0.json", "../x"]}),
        ("tokenizer_config.json", {"sp_model_kwargs": {"model_file": "x"}}),
        ("tokenizer_config.json", {"mecab_kwargs": {"mecab_option": "-d /etc"}}),
        ("tokenizer_config.json", {"unheard_of": "../x"}),
        ("tokenizer_config.json", {"unheard_of": [{"some_file": "x"}]}),
        ("Tokenizer_Config.json", {"vocab": "x"}),
        ("special_tokens_map.json", {"tokenizer_file": None}),
        ("special_tokens_map.json", {"name_or_path": "x"}),
        ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": ELSEWHERE}}),
        ("tokenizer.json", {"model": {"vocab": {}, "merges": "x"}}),
        ("tokenizer.json", {"model": "x"}),
        ("tokenizer.1.0.json", {"model": {"type": "WordPiece", "vocab": ELSEWHERE}}),
        ("config.json", {"model_type": "rag", "index_path": "x"}),
        ("config.json", {"model_type": "a", "text_config": [{"checkpoint_file": "x"}]}),
        ("config.json", {"model_type": "a", "unheard_of": "/etc/passwd"}),
        ("config.json", {"model_type": "a", "_attn_implementation": "somebody/kernel"}),
        ("generation_config.json", {"custom_generate": "x"}),
        ("adapter_config.json", {"megatron_core": "os"}),
        ("adapter_config.json", {"adapters": {"x": "y"}}),
        ("adapter_config.json", {"corda_config": {"cache_file": "x"}}),
    ],
)
def test_what_names_files_or_code_is_refused(path: str, document: object) -> None:
    assert is_document(path)
    assert refused(path, document)


HONEST: dict[str, dict[str, Any]] = {
    "llama": {
        "added_tokens_decoder": {"128000": {"content": "<|begin_of_text|>", "special": True}},
        "bos_token": "<|begin_of_text|>",
        "chat_template": "{% for m in messages %}{{ m }}{% endfor %}",
        "clean_up_tokenization_spaces": True,
        "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": False},
        "legacy": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 1000000000000000019884624838656,
        "sp_model_kwargs": {},
        "tokenizer_class": "PreTrainedTokenizerFast",
        "use_default_system_prompt": False,
    },
    "qwen": {
        "additional_special_tokens": ["<|im_start|>", "</tool_call>"],
        "errors": "replace",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    },
    "bert": {
        "do_basic_tokenize": True,
        "do_lower_case": True,
        "name_or_path": "/home/author/bert",
        "never_split": None,
        "special_tokens_map_file": "/home/author/.cache/special_tokens_map.json",
        "strip_accents": None,
        "tokenizer_file": None,
        "tokenizer_class": "BertTokenizer",
    },
    "gemma": {
        "boi_token": "<start_of_image>",
        "extra_special_tokens": {"image_token": "<image_soft_token>"},
        "processor_class": "Gemma3Processor",
        "sp_model_kwargs": None,
        "spaces_between_special_tokens": False,
    },
    "nllb": {"src_lang": "eng_Latn", "tgt_lang": None, "fast_tokenizer_files": ["tokenizer.json"]},
    "mistral": {"tokenizer_version": "3.1", "padding_side": "left", "a_new_switch": "some_choice"},
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_tokenizers_pass(name: str) -> None:
    assert not refused("tokenizer_config.json", HONEST[name])


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("config.json", {
            "model_type": "gpt2", "_name_or_path": "/raid/models/gpt2", "architectures": ["X"],
            "task_specific_params": {"text-generation": {"prefix": "/x"}}, "attn_pdrop": 0.1,
            "id2label": {"0": "/neutral"}, "transformers_version": "5.23.0", "dtype": "bfloat16",
            "quantization_config": {"quant_method": "gptq", "meta": {"uri": "https://a.b/c"},
                                    "ignore": ["re:.*lm_head"]},
            "rope_scaling": {"rope_type": "llama3", "factor": 32.0}, "auto_map": None,
            "_attn_implementation": "sdpa",
        }),
        ("adapter_config.json", {
            "peft_type": "LORA", "base_model_name_or_path": "acme/base", "auto_mapping": None,
            "megatron_core": "megatron.core", "megatron_config": None, "task_type": "CAUSAL_LM",
            "target_modules": ["q_proj"], "init_lora_weights": True, "loftq_config": {},
        }),
        ("special_tokens_map.json", {"eos_token": {"content": "</s>"}, "pad_token": "</s>",
                                     "additional_special_tokens": ["<x>"]}),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}),
        ("tokenizer.json", {"model": {"type": "Unigram", "vocab": [["a", 0.0]]}, "version": "1"}),
    ],
)  # fmt: skip
def test_honest_documents_pass(path: str, document: object) -> None:
    assert not refused(path, document)


def test_a_vocabulary_in_tokenizer_json_that_is_a_path_would_have_been_opened(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "owner.key"
    secret.write_text("wl-secret\n")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    document = {"model": {"type": "WordPiece", "vocab": str(secret), "unk_token": "[UNK]",
                          "continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
                "added_tokens": []}  # fmt: skip
    (model / "tokenizer.json").write_text(json.dumps(document))
    assert "wl-secret" in BertTokenizer.from_pretrained(model).get_vocab(), "what is refused"
    with pytest.raises(RefusedDocument, match="vocab"):
        check_folder(model)


def test_a_folder_is_checked_whole(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    check_folder(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "acme/base"}')
    check_folder(tmp_path, adapter=True)
    with pytest.raises(RefusedDocument, match="as a base model"):
        check_folder(tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"w": "../other/model.safetensors"}}'
    )
    with pytest.raises(RefusedDocument, match="is missing"):
        check_folder(tmp_path)


LLAMA_8B = {
    "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131_072, "rope_theta": 500_000, "bos_token_id": 128_000,
}  # fmt: skip
QWEN3_30B = {
    "model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_hidden_layers": 48, "num_attention_heads": 32, "max_position_embeddings": 10_485_760,
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "vocab_size": 50_257, "n_embd": 768, "n_layer": 12, "n_head": 12}


@pytest.mark.parametrize(
    ("config", "weights"),
    [(LLAMA_8B, 16 * 10**9), (LLAMA_8B, 5 * 10**9), (QWEN3_30B, 17 * 10**9), (GPT2, 250 * 10**6)],
)
def test_models_that_hold_what_they_declare_are_taken(config: dict[str, Any], weights: int) -> None:
    """In 16 bits, and in 4."""
    check_document("config.json", json.dumps(config).encode(), known=KNOWN, weights=weights)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"vocab_size": 10**9}, "1000000000 as 'vocab_size'"),
        ({"vocab_size": 10**6}, "vocab_size=1000000 x hidden_size=64"),
        ({"hidden_size": 10**6}, "hidden_size=1000000"),
        ({"hidden_size": 10**400}, "'hidden_size'"),
        ({"intermediate_size": 10**6}, "hidden_size=64 x intermediate_size=1000000"),
        ({"num_hidden_layers": 10**6}, "1000000 as 'num_hidden_layers'; at most 2000"),
        ({"head_dim": 10**5, "num_attention_heads": 64}, "head_dim=100000"),
        ({"num_local_experts": 10**5}, "num_local_experts=100000"),
        ({"text_config": {"vocab_size": 10**9}}, "'vocab_size'"),
        ({"d_state": 10**9}, "'d_state'"),
    ],
)
def test_a_model_that_declares_more_than_it_holds_is_refused(
    wrong: dict[str, Any], said: str
) -> None:
    """Its loader would make the missing weights in memory, and as many modules."""
    tiny = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, **wrong}
    with pytest.raises(RefusedDocument) as refusal:
        check_document("config.json", json.dumps(tiny).encode(), known=KNOWN, weights=68_000)
    assert said in refusal.value.message
    assert refusal.value.reason == "invalid_config"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("config.json", b'{"model_type": "a", "x": [' + b"[]," * 2_000_000 + b"[]]}"),
        ("tokenizer_config.json", b'{"x": [' + b"0," * 2_000_000 + b"0]}"),
        ("tokenizer.json", b'{"model": {"vocab": [' + b'["",0],' * 2_000_000 + b'["",0]]}}'),
        ("tokenizer.json", b'{"model": {"merges": [' + b'"",' * 5_000_000 + b'""]}}'),
        ("tokenizer.json", b'{"added_tokens": [' + b"{}," * 2_000_000 + b"{}]}"),
    ],
)
def test_a_document_of_millions_of_values_is_refused_before_it_is_read(
    path: str, content: bytes
) -> None:
    with pytest.raises(RefusedDocument, match="more"):
        check_document(path, content, known=KNOWN)

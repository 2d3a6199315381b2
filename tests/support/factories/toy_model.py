"""A random Llama of 0.2 M parameters with a byte-level tokenizer, made in a second."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers import PreTrainedTokenizerFast as FastTokenizer

CONTEXT = 512

# Threads that spin for a core which other tests use make a small model slow.
torch.set_num_threads(1)
TEXTS = ["the quick brown fox jumps over the lazy dog", "näive café — 日本語 😀", "red green blue"]
TEMPLATE = (
    "{%- if tools %}{{ '<|im_start|>tools\n' }}{{ tools | tojson }}{{ '<|im_end|>\n' }}{%- endif %}"
    "{%- for m in messages %}"
    "{%- if m['content'] == 'refuse me' %}{{ raise_exception('refused') }}{%- endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
    "{%- for c in m.tool_calls or [] %}{{- '\n' if m.content or not loop.first }}"
    '{{- \'<tool_call>\n{"name": "\' + c.function.name + \'", "arguments": \' }}'
    "{{- c.function.arguments | tojson }}{{- '}\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
)


def make_model(
    path: Path, *, hidden: int = 64, layers: int = 2, template: str | None = TEMPLATE
) -> Path:
    """Writes a model folder."""
    tokenizer = make_tokenizer(template)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        # Wide, so that the greedy path does not hang on the last bit of a float.
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def make_draft(base: Path, path: Path) -> Path:
    """Writes a model that often says what `base` says, but not always."""
    torch.manual_seed(3)
    network = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.03 * torch.randn_like(weights)
    network.save_pretrained(path)
    AutoTokenizer.from_pretrained(base).save_pretrained(path)
    return path


def make_classifier(path: Path) -> Path:
    """Writes a model with a scoring head."""
    make_model(path)
    torch.manual_seed(1)
    network = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1)
    network.save_pretrained(path)
    return path


def make_scoring_adapter(base: Path, path: Path) -> Path:
    """Writes a LoRA adapter with a head that scores, as TRL's reward trainer does."""
    torch.manual_seed(2)
    network = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=4,
        lora_alpha=32,
        target_modules=["q_proj", "v_proj"],
        modules_to_save=["score"],
        init_lora_weights=False,
    )
    get_peft_model(network, config).save_pretrained(path)
    return _named(path)


def _named(adapter: Path) -> Path:
    """Replaces the base's folder, which PEFT wrote, by a name as runners do; paths are refused."""
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "toy"}))
    return adapter


def make_tokenizer(template: str | None) -> FastTokenizer:
    """A byte-level BPE of some 400 tokens."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXTS * 3, trainer)
    tokenizer = FastTokenizer(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = template
    return tokenizer


def make_adapter(base: Path, path: Path, *, seed: int, **options: object) -> Path:
    """Writes a LoRA adapter that changes the model's answers."""
    torch.manual_seed(seed)
    network = AutoModelForCausalLM.from_pretrained(base)
    wanted = {"r": 4, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], **options}
    config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **wanted)
    get_peft_model(network, config).save_pretrained(path)
    return _named(path)

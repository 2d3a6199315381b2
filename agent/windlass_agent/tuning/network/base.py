"""A base model with frozen weights, ready for packed passes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from windlass.modelfiles import check_folder
from windlass_agent.tuning.network import attention
from windlass_agent.tuning.network.adapter import LayerShape
from windlass_agent.tuning.network.attention import Span
from windlass_agent.tuning.network.layout import AdaptedLayer, Layout, Segment
from windlass_agent.tuning.requests.operations import Target

_ATTENTION = re.compile(r"attn|attention", re.IGNORECASE)
_MLP = re.compile(r"mlp|feed_forward|ffn", re.IGNORECASE)
# What chooses experts decides for all tokens alike.
_ROUTERS = frozenset(("gate", "router", "shared_expert_gate"))
# Products of fewer rows take another path through the libraries, with other last bits.
_FEWEST_ROWS = 8
_PROBES = (5, 9)


class UnfitBase(Exception):
    """A model that packed passes cannot train, with the reason."""


@dataclass(frozen=True)
class PackedRows:
    """A pass: tokens of sequences one behind the other, and who owns them."""

    tokens: torch.Tensor
    spans: Sequence[Span]
    segments: Sequence[Segment]


class BaseNetwork:
    """The base weights, held once; `identity` names them in states and exports."""

    def __init__(self, network: PreTrainedModel, identity: str, *, adapts: bool = True):
        self.identity = identity
        self.network: Any = network.requires_grad_(False).eval()
        self._layout = Layout()
        self.layers = tuple(self._adapt()) if adapts else ()
        self._head: AdaptedLayer = network.get_output_embeddings()

    @classmethod
    def load(
        cls, folder: Path, identity: str, device: str = "auto", *, adapts: bool = True
    ) -> "BaseNetwork":
        """Reads a folder of safetensors; raises UnfitBase, never runs code from it.

        One that adapts nothing has its parameters under their own names, in float32, as steps of
        them need it.
        """
        place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        if place != "cpu":
            torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            check_folder(folder)
            network = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.bfloat16 if adapts and place != "cpu" else torch.float32,
                attn_implementation="eager",
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise UnfitBase(f"the model cannot be read: {error}") from error
        return cls.fit(network.to(place), identity, adapts=adapts)

    @classmethod
    def fit(cls, network: PreTrainedModel, identity: str, *, adapts: bool = True) -> "BaseNetwork":
        """Takes a loaded model; raises UnfitBase if packed passes give other logits than its own.

        An architecture that hands our attention no spans, or whose logits are more than its head's
        product, would train on something else in silence.
        """
        kind = network.config.model_type
        draw = torch.Generator().manual_seed(0)
        vocabulary = int(network.config.get_text_config().vocab_size)
        probes = [torch.randint(vocabulary, (length,), generator=draw) for length in _PROBES]
        try:
            with torch.no_grad():
                network.set_attn_implementation("eager")
                expected = [network(one[None].to(network.device)).logits[0] for one in probes]
                network.set_attn_implementation(attention.NAME)
                base = cls(network, identity, adapts=adapts)
                found = base._probed([one.to(network.device) for one in probes])
        except Exception as error:
            raise UnfitBase(f"{kind} cannot be trained in packed passes: {error}") from error
        relative, absolute = (1e-3, 1e-3) if network.dtype == torch.float32 else (5e-2, 0.5)
        for ours, theirs in zip(found, expected, strict=True):
            if not torch.allclose(ours, theirs.float(), rtol=relative, atol=absolute):
                raise UnfitBase(f"{kind} gives other logits in packed passes")
        return base

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        device: torch.device = self.network.device
        return device

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yields its weights, and what it computes with beside them."""
        yield from self.network.parameters()
        yield from self.network.buffers()

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text."""
        declared = getattr(self.network.generation_config, "eos_token_id", None)
        return frozenset([declared] if isinstance(declared, int) else declared or ())

    @property
    def vocabulary(self) -> int:
        """The number of tokens that it knows."""
        return int(self.network.config.get_text_config().vocab_size)

    @property
    def context(self) -> int:
        """Tokens of its longest sequence."""
        return int(self.network.config.get_text_config().max_position_embeddings)

    def hidden(self, rows: PackedRows) -> torch.Tensor:
        """Last hidden states of all tokens [tokens, hidden]."""
        tokens, spans = rows.tokens, list(rows.spans)
        if (lack := _FEWEST_ROWS - len(tokens)) > 0:
            spans.append((len(tokens), len(tokens) + lack))
            tokens = torch.nn.functional.pad(tokens, (0, lack))
        positions = torch.cat([torch.arange(end - start) for start, end in spans])
        segments = list(rows.segments)
        if segments and segments[-1].end < len(tokens):
            segments.append(Segment(segments[-1].end, len(tokens), 0.0, {}))
        with self._layout.use(segments):
            output = self.network.base_model(
                input_ids=tokens[None],
                position_ids=positions[None].to(tokens.device),
                use_cache=False,
                spans=spans,
            )
        states: torch.Tensor = output.last_hidden_state[0, : len(rows.tokens)]
        return states

    def logits(self, hidden: torch.Tensor, segment: Segment | None) -> torch.Tensor:
        """Logits of hidden states [rows, vocabulary], in fp32, through an adapter's head."""
        own = [] if segment is None else [Segment(0, len(hidden), segment.scale, segment.pairs)]
        with self._layout.use(own):
            logits: torch.Tensor = self._head(hidden[None])[0]
        return logits.float()

    def extend(
        self, tokens: torch.Tensor, cache: DynamicCache, segment: Segment | None
    ) -> torch.Tensor:
        """Hidden states [rows, new, hidden] of new tokens [rows, new] behind those in `cache`.

        All rows go through the one segment's matrices.
        """
        seen = cache.get_seq_length()
        places = torch.arange(seen, seen + tokens.shape[1], device=tokens.device)
        with self._layout.use([segment] if segment else []):
            states: torch.Tensor = self.network.base_model(
                input_ids=tokens,
                position_ids=places[None].expand(len(tokens), -1),
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
        return states

    def new_cache(self) -> DynamicCache:
        """A cache that holds nothing yet."""
        return DynamicCache(config=self.network.config)

    def _probed(self, probes: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        lengths = [len(one) for one in probes]
        ends = list(accumulate(lengths))
        spans = list(zip([0, *ends], ends, strict=False))
        states = self.hidden(PackedRows(torch.cat(list(probes)), spans, ()))
        return [self.logits(own, None) for own in states.split(lengths)]

    def _adapt(self) -> Iterator[LayerShape]:
        head = self.network.get_output_embeddings()
        for name, module in list(self.network.named_modules()):
            target = _target(name, module, head)
            if target is None:
                continue
            parent, _, last = name.rpartition(".")
            layer = AdaptedLayer(name, module, self._layout)
            setattr(self.network.get_submodule(parent), last, layer)
            yield LayerShape(name, target, module.in_features, module.out_features)


def _target(name: str, module: torch.nn.Module, head: torch.nn.Module) -> Target | None:
    if module is head and isinstance(module, torch.nn.Linear):
        return "unembed"
    parts = name.split(".")
    # An expert sees the tokens that were sent to it, in an order that says nothing of their owners.
    if not isinstance(module, torch.nn.Linear) or parts[-1] in _ROUTERS or "experts" in parts:
        return None
    if _ATTENTION.search(name):
        return "attention"
    return "mlp" if _MLP.search(name) else None

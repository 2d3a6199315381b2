"""Names and shapes of Hugging Face as parts of an engine's parameters."""

import pytest

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import Handle, WeightHandles
from windlass_vllm.weights.naming import Part, parts_of

# As vLLM says of Qwen3.5, which its environment in the tests has no packages for.
PACKED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
# Queries carry a gate; the linear module's cuts are those of q, k, v and z.
LAYER = "model.layers.0."
ENGINE = {
    f"{LAYER}self_attn.qkv_proj.weight": ((24, 8), (16, 20, 24)),
    f"{LAYER}linear_attn.in_proj_qkvz.weight": ((32, 8), (8, 16, 24, 32)),
    f"{LAYER}linear_attn.in_proj_ba.weight": ((4, 8), (2, 4)),
    f"{LAYER}linear_attn.A_log": ((2,), ()),
    "model.embed_tokens.weight": ((64, 8), ()),
}
WANTED = {
    "model.language_model.layers.0.self_attn.v_proj.weight": (4, 8),
    "model.language_model.layers.0.self_attn.q_proj.weight": (16, 8),
    "model.language_model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.language_model.layers.0.linear_attn.in_proj_qkv.weight": (24, 8),
    "model.language_model.layers.0.linear_attn.in_proj_z.weight": (8, 8),
    "model.language_model.layers.0.linear_attn.in_proj_a.weight": (2, 8),
    "model.language_model.layers.0.linear_attn.in_proj_b.weight": (2, 8),
    "model.language_model.layers.0.linear_attn.A_log": (2,),
    "model.language_model.embed_tokens.weight": (50, 8),
}


def engine() -> WeightHandles:
    found = tuple(
        Handle(name, "float32", shape, (), 0, 50 if shape[0] == 64 else shape[0], cuts)
        for name, (shape, cuts) in ENGINE.items()
    )
    return WeightHandles(
        generation=1,
        device="cpu",
        size=0,
        context=1,
        config="{}",
        packed=PACKED,
        prefixes={"model.language_model.": "model."},
        handles=found,
    )


def test_every_row_of_the_engine_is_one_parameter_or_padding() -> None:
    parts = parts_of(engine(), WANTED)
    assert parts.keys() == WANTED.keys()
    linear = f"{LAYER}linear_attn."
    found = {name.rpartition("_attn.")[2]: part for name, part in parts.items()}
    assert found["q_proj.weight"] == Part(f"{LAYER}self_attn.qkv_proj.weight", 0, 16)
    assert found["v_proj.weight"] == Part(f"{LAYER}self_attn.qkv_proj.weight", 20, 4)
    assert found["in_proj_z.weight"] == Part(f"{linear}in_proj_qkvz.weight", 24, 8)
    assert found["in_proj_a.weight"] == Part(f"{linear}in_proj_ba.weight", 2, 2)
    rows = sorted((part.handle, part.first, part.first + part.rows) for part in parts.values())
    ends = {handle: 0 for handle, _, _ in rows}
    for handle, first, last in rows:
        assert ends[handle] == first
        ends[handle] = last
    assert ends == {one.name: one.rows for one in engine().handles}


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("self_attn.k_proj.weight", (5, 8), "shapes_differ"),
        ("self_attn.k_proj.weight", None, "shapes_differ"),
        ("self_attn.k_proj.bias", (4,), "names_differ"),
        ("linear_attn.A_log", (3,), "shapes_differ"),
        ("linear_attn.A_log", None, "names_differ"),
        ("linear_attn.norm.weight", (8,), "names_differ"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    name: str, shape: tuple[int, ...] | None, reason: str
) -> None:
    whole = f"model.language_model.layers.0.{name}"
    wanted = {key: one for key, one in WANTED.items() if key != whole}
    if shape is not None:
        wanted[whole] = shape
    with pytest.raises(Refused) as error:
        parts_of(engine(), wanted)
    assert error.value.reason == reason

"""How a model makes vectors is read from its files, and refused where no engine knows it."""

import json
from typing import Any

import pytest

from windlass.core.errors import InvalidArgument
from windlass.modelfiles import RefusedDocument, check_document, is_document
from windlass.modelfiles.documents import max_bytes
from windlass.modelfiles.encoders.embedding import PLAIN, DenseLayer, Pooling, pooling_of
from windlass.models.manifest import makes_vectors, tells_pooling

OLD, NEW = "sentence_transformers.models", "sentence_transformers.sentence_transformer.modules"
POOLING = {"type": f"{OLD}.Pooling", "path": "1_Pooling"}
DENSE = {"type": f"{OLD}.Dense", "path": "2_Dense"}
NORMALIZE = {"type": f"{OLD}.Normalize", "path": "3_Normalize"}
NETWORK = {"type": f"{OLD}.Transformer", "path": ""}
MEAN = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
TANH = {
    "in_features": 8,
    "out_features": 4,
    "activation_function": "torch.nn.modules.activation.Tanh",
}
BERT = {"architectures": ["BertModel"]}


def model(modules: Any, **configs: Any) -> dict[str, bytes]:
    files = {"modules.json": modules, "1_Pooling/config.json": MEAN, "2_Dense/config.json": TANH}
    files |= {f"{folder}/config.json": config for folder, config in configs.items()}
    return {path: json.dumps(one).encode() for path, one in files.items()}


def pooling(documents: dict[str, bytes], config: dict[str, Any] = BERT) -> Pooling | None:
    return pooling_of(config, documents, documents.__getitem__)


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_the_vector_is_of_the_token_that_the_files_name(config: Any, mode: str) -> None:
    found = pooling(model([NETWORK, POOLING], **{"1_Pooling": config}))
    assert found is not None
    assert (found.mode, found.layers, found.normalize) == (mode, (), False)


def test_layers_and_length_one_come_after_it() -> None:
    normalize = {"type": f"{NEW}.normalize.Normalize", "path": "3_Normalize"}
    newer = {"type": f"{NEW}.pooling.Pooling", "path": "1_Pooling"}
    layer = DenseLayer("2_Dense/model.safetensors", True, "tanh")
    assert pooling(model([NETWORK, newer, DENSE, normalize])) == Pooling("mean", (layer,), True)


@pytest.mark.parametrize(
    ("architectures", "found"),
    [
        (["BertModel"], PLAIN),
        (["LlamaForCausalLM"], None),
        (["GPT2LMHeadModel"], None),
        (["GPT2DoubleHeadsModel"], None),
        ([], None),
        (None, None),
    ],
)
def test_without_a_word_the_architecture_says(architectures: Any, found: Pooling | None) -> None:
    assert pooling_of({"architectures": architectures}, (), lambda _: b"") == found


def test_a_causal_model_with_such_files_is_an_embedder() -> None:
    qwen = {"architectures": ["Qwen3ForCausalLM"]}
    assert pooling(model([NETWORK, POOLING]), qwen) is not None
    # It has steps, but none that makes one vector.
    assert pooling(model([NETWORK]), qwen) is None


@pytest.mark.parametrize(
    ("modules", "configs", "words"),
    [
        ([{"type": "pylate.models.Dense.Dense", "path": "1"}], {}, "pylate"),
        ([{"type": "os.Pooling", "path": "1_Pooling"}], {}, "os.Pooling"),
        ([{**NETWORK, "path": "0_Transformer"}, POOLING], {}, "0_Transformer"),
        ([POOLING], {"1_Pooling": {"pooling_mode_max_tokens": True}}, "pooling_mode_max_tokens"),
        ([POOLING], {"1_Pooling": {}}, "no vector"),
        ([POOLING], {"1_Pooling": MEAN | {"pooling_mode_cls_token": True}}, "there is one"),
        ([POOLING, DENSE], {"2_Dense": {"activation_function": "os.system"}}, "os.system"),
        ([POOLING], {"1_Pooling": []}, "not a JSON object"),
        ([NETWORK, POOLING, NORMALIZE, DENSE], {}, "another order"),
        ([POOLING, POOLING], {}, "another order"),
        ([NETWORK] * 17, {}, "more than 16 steps"),
        ({"modules": []}, {}, "no list of modules"),
        ("[" * 5000, {}, "no list of modules"),
    ],
)
def test_a_way_that_no_engine_has_is_refused(modules: Any, configs: Any, words: str) -> None:
    documents = model(modules, **configs)
    with pytest.raises(RefusedDocument, match=words):
        pooling(documents)
    with pytest.raises(InvalidArgument, match=words):
        makes_vectors(BERT, documents)


@pytest.mark.parametrize("path", ["../other", "/etc", "a/b", ".", "", "1_Pooling\0", "~"])
def test_no_folder_but_the_model_s_own_is_opened(path: str) -> None:
    content = json.dumps([{**POOLING, "path": path}]).encode()
    known = {f"{path}/config.json", "modules.json"}
    assert is_document("modules.json")
    assert is_document("Modules.json")
    with pytest.raises(RefusedDocument) as refused:
        check_document("modules.json", content, known=known)
    assert refused.value.reason == "invalid_path"


def test_a_step_without_its_files_is_incomplete() -> None:
    content = json.dumps([NETWORK, POOLING, DENSE]).encode()
    known = {"1_Pooling/config.json", "2_Dense/config.json"}
    with pytest.raises(RefusedDocument, match=r"2_Dense/model\.safetensors") as refused:
        check_document("modules.json", content, known=known)
    assert refused.value.reason == "incomplete_model"
    check_document("modules.json", content, known={*known, "2_Dense/model.safetensors"})


def test_a_document_of_a_step_is_small_and_no_other_is_read() -> None:
    assert max_bytes("1_Pooling/config.json") == 64 * 1024
    assert tells_pooling("1_Pooling/config.json")
    assert not tells_pooling("onnx/config.json")


@pytest.mark.parametrize("names", [5, True, "BertModel", ["BertModel", 3], {"a": 1}])
def test_architectures_are_a_list_of_names(names: Any) -> None:
    content = json.dumps({"model_type": "bert", "architectures": names}).encode()
    with pytest.raises(RefusedDocument, match="no list of names"):
        check_document("config.json", content, known=())


def test_a_long_list_is_not_read() -> None:
    with pytest.raises(RefusedDocument, match="too large"):
        check_document("modules.json", b" " * 70_000, known=())

"""Scores of cross-encoders, by the words that their files use."""

import json
from typing import Any

import pytest

from windlass.modelfiles.documents import check_document
from windlass.modelfiles.encoders.reranking import activation_of
from windlass.modelfiles.refusal import RefusedDocument

IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "sigmoid"),
        ({"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}}, "none"),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, "sigmoid"),
        ({"sentence_transformers": {"version": "4.1.0"}}, "sigmoid"),
        ({"sbert_ce_default_activation_function": IDENTITY}, "none"),
        ({"sbert_ce_default_activation_function": None}, "sigmoid"),
        ({"problem_type": "regression"}, "none"),
        ({"problem_type": "multi_label_classification"} | {"sentence_transformers": {}}, "sigmoid"),
        (
            {
                "problem_type": "single_label_classification",
                "sbert_ce_default_activation_function": IDENTITY,
            },
            "sigmoid",
        ),
    ],
)
def test_the_model_says_what_its_scores_are(config: dict[str, Any], expected: str) -> None:
    assert activation_of(config) == expected


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.module.warnings"}},
            "activation_fn",
        ),
        ({"sentence_transformers": {"activation_fn": ["a"]}}, "activation_fn"),
        ({"sentence_transformers": "activation_fn"}, "sentence_transformers"),
        ({"sbert_ce_default_activation_function": "os.system"}, "sbert_ce_default"),
    ],
)
def test_any_other_name_is_refused_with_the_model(config: dict[str, Any], named: str) -> None:
    document = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], **config}
    with pytest.raises(RefusedDocument, match=named) as refused:
        check_document("config.json", json.dumps(document).encode(), known=["config.json"])
    assert refused.value.reason == "invalid_config"

"""Similarity of texts, against what the field's own libraries say of the same ones."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.graders import Ungradable
from windlass.graders.similarity import LONGEST, similarity

METRICS = (
    "cosine", "fuzzy_match", "bleu", "gleu", "meteor",
    "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l",
)  # fmt: skip
# Few letters have much in common; all of Unicode has lone surrogates and wide characters. Lengths
# pass the 64 bits of a machine word.
ANY_TEXT = st.text(alphabet="abc", max_size=150) | st.text(st.characters(), max_size=40)
WORDS = st.lists(st.sampled_from(["a", "b", "ab", "a1", "é", "чай", "7"]), min_size=1, max_size=80)
# RapidFuzz 3.14.6 (ratio), NLTK 3.10.4 (BLEU by its smoothing 2, GLEU, METEOR without stems
# and WordNet) and rouge-score 0.1.2.
KNOWN: list[tuple[str, str, dict[str, float]]] = [
    (
        "The cat sat on the mat.",
        "the cat is on the mat",
        {
            "fuzzy_match": 0.863636,
            "bleu": 0.485492,
            "gleu": 0.5,
            "meteor": 0.806667,
            "rouge_1": 0.833333,
            "rouge_2": 0.6,
            "rouge_3": 0.25,
            "rouge_4": 0.0,
            "rouge_5": 0.0,
            "rouge_l": 0.833333,
        },
    ),
    (
        "It is a guide to action which ensures that the military always obeys "
        "the commands of the party",
        "It is a guide to action that ensures that the military will forever heed Party commands",
        {
            "fuzzy_match": 0.751381,
            "bleu": 0.455087,
            "gleu": 0.454545,
            "meteor": 0.694444,
            "rouge_1": 0.705882,
            "rouge_2": 0.5,
            "rouge_3": 0.4,
            "rouge_4": 0.285714,
            "rouge_5": 0.153846,
            "rouge_l": 0.647059,
        },
    ),
    (
        "Paris is the capital of France",
        "The capital of France is Paris, a large and old city",
        {
            "fuzzy_match": 0.487805,
            "bleu": 0.290633,
            "gleu": 0.315789,
            "meteor": 0.535714,
            "rouge_1": 0.705882,
            "rouge_2": 0.4,
            "rouge_3": 0.307692,
            "rouge_4": 0.181818,
            "rouge_5": 0.0,
            "rouge_l": 0.470588,
        },
    ),
    (
        "Your apple is brown.",
        "Your apple is red.",
        {
            "fuzzy_match": 0.842105,
            "bleu": 0.658037,
            "gleu": 0.6,
            "meteor": 0.736111,
            "rouge_1": 0.75,
            "rouge_2": 0.666667,
            "rouge_3": 0.5,
            "rouge_4": 0.0,
            "rouge_5": 0.0,
            "rouge_l": 0.75,
        },
    ),
    (
        "one two three four five six seven",
        "seven six five four three two one",
        {
            "fuzzy_match": 0.424242,
            "bleu": 0.262691,
            "gleu": 0.318182,
            "meteor": 0.5,
            "rouge_1": 1.0,
            "rouge_2": 0.0,
            "rouge_3": 0.0,
            "rouge_4": 0.0,
            "rouge_5": 0.0,
            "rouge_l": 0.142857,
        },
    ),
]


@pytest.mark.parametrize(("text", "reference", "expected"), KNOWN)
def test_scores_are_those_of_the_libraries(
    text: str, reference: str, expected: dict[str, float]
) -> None:
    found = {metric: round(similarity(metric, text, reference), 6) for metric in expected}
    # Of several ways to pair equal words NLTK takes one with more chunks than needed.
    if "guide" in text:
        assert found.pop("meteor") > expected.pop("meteor")
    assert found == expected


def test_cosine_compares_counts_of_words() -> None:
    assert similarity("cosine", "a b b", "b a a") == pytest.approx(4 / 5)
    assert similarity("cosine", "a b", "c d") == 0


@given(st.sampled_from(METRICS), st.text(max_size=60), st.text(max_size=60))
def test_every_score_lies_between_nothing_and_all(metric: str, text: str, reference: str) -> None:
    assert 0 <= similarity(metric, text, reference) <= 1 + 1e-9


@given(st.sampled_from(METRICS), st.text(max_size=60))
def test_a_text_is_like_itself(metric: str, text: str) -> None:
    # METEOR takes off for one chunk, the less the longer the text.
    least = 0.5 if metric == "meteor" else 1 - 1e-9
    assert similarity(metric, text, text) >= least


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence, by the textbook's table."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


@given(one=ANY_TEXT, other=ANY_TEXT)
def test_fuzzy_match_is_the_textbooks_of_characters(one: str, other: str) -> None:
    expected = 2 * common_length(one, other) / (len(one) + len(other)) if one or other else 1.0
    assert similarity("fuzzy_match", one, other) == expected


@given(one=WORDS, other=WORDS)
def test_rouge_l_is_the_textbooks_of_words(one: list[str], other: list[str]) -> None:
    expected = 2 * common_length(one, other) / (len(one) + len(other))
    assert similarity("rouge_l", " ".join(one), " ".join(other)) == expected


def test_texts_of_no_bounded_time_are_refused() -> None:
    assert math.isclose(similarity("fuzzy_match", "a" * LONGEST, "a" * LONGEST), 1)
    with pytest.raises(Ungradable, match="exceeds"):
        similarity("rouge_l", "a" * (LONGEST + 1), "a")

"""Similarity of two texts, from 0 to 1, by OpenAI's names.

Words are runs of letters and digits, in lower case. `fuzzy_match` alone looks at characters, as
they are. `cosine` compares counts of words: not every installation serves an embedding model.
`meteor` matches equal words, without stems and synonyms, which are data of one language.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from windlass.graders.faults import Fault, Ungradable

# The longest common subsequence takes time by the product of two lengths.
LONGEST = 32_768
_WORD = re.compile(r"[^\W_]+")
Words = list[str]


def similarity(metric: str, text: str, reference: str) -> float:
    """The likeness of two texts, in [0, 1]; raises Ungradable for one beyond LONGEST."""
    if max(len(text), len(reference)) > LONGEST:
        raise Ungradable(Fault.OTHER, f"A text to compare exceeds {LONGEST} characters.")
    if metric == "fuzzy_match":
        return _lcs_f1(text, reference)
    words, other = _words(text), _words(reference)
    if not words or not other:
        return float(words == other)
    return _BY_WORDS[metric](words, other)


def _words(text: str) -> Words:
    return _WORD.findall(text.lower())


def _f1(shared: float, one: int, other: int) -> float:
    return 2 * shared / (one + other) if one + other else 1.0


def _lcs_f1(one: Sequence[str], other: Sequence[str]) -> float:
    """The likeness by the longest common subsequence."""
    # Who reads graders and grades nothing, such as the command, need not have it.
    from rapidfuzz.distance import LCSseq

    return _f1(LCSseq.similarity(one, other), len(one), len(other))


def _grams(words: Words, size: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(size)), strict=False))


def _cosine(words: Words, reference: Words) -> float:
    one, other = Counter(words), Counter(reference)
    product = sum(count * other[word] for word, count in one.items())
    return min(1.0, product / math.sqrt(_square(one) * _square(other)))


def _square(counts: Counter[str]) -> int:
    return sum(count * count for count in counts.values())


def _bleu(words: Words, reference: Words) -> float:
    """Returns BLEU of up to four words, smoothed beyond single ones (Lin and Och, 2004)."""
    total = 0.0
    for size in range(1, 5):
        grams = _grams(words, size)
        shared, count = (grams & _grams(reference, size)).total(), grams.total()
        if size == 1 and not shared:
            return 0.0
        add = size > 1
        total += math.log((shared + add) / (count + add)) / 4
    return math.exp(total + min(0.0, 1 - len(reference) / len(words)))


def _gleu(words: Words, reference: Words) -> float:
    """Returns Google's BLEU: the lesser of precision and recall of one to four words."""
    shared = most = 0
    for size in range(1, 5):
        one, other = _grams(words, size), _grams(reference, size)
        shared += (one & other).total()
        most += max(one.total(), other.total())
    return shared / most


def _meteor(words: Words, reference: Words) -> float:
    pairs = _aligned(words, reference)
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(words), len(pairs) / len(reference)
    chunks = 1 + sum((b - a, d - c) != (1, 1) for (a, c), (b, d) in pairwise(pairs))
    mean = 10 * precision * recall / (recall + 9 * precision)
    return mean * (1 - 0.5 * (chunks / len(pairs)) ** 3)


def _aligned(words: Words, reference: Words) -> list[tuple[int, int]]:
    """Pairs equal words, each with the place next to the pair before it where that is free."""
    free: dict[str, list[int]] = {}
    for index, word in enumerate(reference):
        free.setdefault(word, []).append(index)
    pairs: list[tuple[int, int]] = []
    for index, word in enumerate(words):
        places = free.get(word)
        if places:
            following = pairs[-1][1] + 1 if pairs else 0
            place = following if following in places else places[0]
            places.remove(place)
            pairs.append((index, place))
    return pairs


def _rouge(size: int) -> Callable[[Words, Words], float]:
    def score(words: Words, reference: Words) -> float:
        one, other = _grams(words, size), _grams(reference, size)
        # Texts too short for a single gram share what there is only when they are the same.
        if not one and not other:
            return float(words == reference)
        return _f1((one & other).total(), one.total(), other.total())

    return score


def _rouge_l(words: Words, reference: Words) -> float:
    return _lcs_f1(words, reference)


_BY_WORDS: dict[str, Callable[[Words, Words], float]] = {
    "cosine": _cosine,
    "bleu": _bleu,
    "gleu": _gleu,
    "meteor": _meteor,
    **{f"rouge_{size}": _rouge(size) for size in range(1, 6)},
    "rouge_l": _rouge_l,
}

"""Names that were probably meant by one that nobody knows."""

from collections.abc import Iterable

from rapidfuzz import fuzz, process, utils

# Of 100; below it another name only looks alike.
LIKENESS = 80


def closest(word: str, known: Iterable[str]) -> str:
    """The known name most like a word; empty when none is much like it."""
    found = process.extractOne(
        word,
        list(known),
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        score_cutoff=LIKENESS,
    )
    return "" if found is None else str(found[0])


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence to append to a refusal; empty when no known name is much like the word."""
    name = closest(word, known)
    return f" Did you mean {name!r}?" if name else ""

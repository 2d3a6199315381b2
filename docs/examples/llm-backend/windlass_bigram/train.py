"""`python -m windlass_bigram.train`: reads `train.jsonl`, writes `model.json`."""

import argparse
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--min-count", type=int, default=1)
    asked = parser.parse_args()
    seen: Counter[tuple[str, str]] = Counter()
    with (asked.dataset / "train.jsonl").open(encoding="utf-8") as rows:
        for row in rows:
            words = json.loads(row)["text"].split()
            seen.update(pairwise(words))
    model = {" ".join(pair): count for pair, count in seen.items() if count >= asked.min_count}
    asked.output.mkdir(parents=True, exist_ok=True)
    (asked.output / "model.json").write_text(json.dumps(model), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`python -m windlass_agent.gguf`: writes the files of models, or that of an adapter of one.

Exit code 2 stands for one that has no such form; the last line of the output says why.
"""

import argparse
import sys
from pathlib import Path

from windlass_agent.gguf import adapter_file, model_file
from windlass_agent.gguf.layout import Unsupported

UNSUPPORTED = 2


def main() -> int:
    """Writes the files; returns 0 or UNSUPPORTED."""
    parser = argparse.ArgumentParser(prog="windlass-gguf", description=__doc__)
    parser.add_argument(
        "--model", type=Path, required=True, action="append", help="folder of a model"
    )
    parser.add_argument(
        "--adapter", type=Path, help="folder of an adapter of the model, which is written instead"
    )
    parser.add_argument(
        "--to", type=Path, required=True, action="append", help="file of the model in its order"
    )
    parser.add_argument("--name", default="model")
    options = parser.parse_args()
    what = "model" if options.adapter is None else "adapter"
    try:
        if options.adapter is None:
            for model, target in zip(options.model, options.to, strict=True):
                model_file.write(model, target, name=options.name)
                what = "draft model"
        else:
            adapter_file.write(options.adapter, options.model[0], options.to[0])
    except Unsupported as error:
        print(f"The {what} cannot be written as GGUF: {error}.")
        return UNSUPPORTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

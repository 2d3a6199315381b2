"""`python -m windlass_agent.gguf`: writes the file of a model, or of its adapter.

Exit code 2 stands for one that has no such form; the last line of the output says why.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from windlass_agent.gguf import adapter_file, model_file
from windlass_agent.gguf.layout import Unsupported

UNSUPPORTED = 2


def main() -> int:
    """Writes the file; returns 0 or UNSUPPORTED."""
    parser = argparse.ArgumentParser(prog="windlass-gguf", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder of the base")
    parser.add_argument("--adapter", type=Path, help="folder of the adapter, which is written")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--name", default="model")
    options = parser.parse_args()
    # Whole weights pass through a temporary file, for which memory is no place.
    tempfile.tempdir = str(options.to.absolute().parent)
    what = "model" if options.adapter is None else "adapter"
    try:
        if options.adapter is None:
            model_file.write(options.model, options.to, name=options.name)
        else:
            adapter_file.write(options.adapter, options.model, options.to)
    except Unsupported as error:
        print(f"The {what} cannot be written as GGUF: {error}.")
        return UNSUPPORTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

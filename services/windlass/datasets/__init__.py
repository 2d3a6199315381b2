"""Fine-tuning files: what an example may hold, how a file is checked, what a trainer gets.

May import nothing else of Windlass, so that the CLI and a trainer can check a file.
"""

from windlass.datasets.conversion import formats_for, to_row
from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.examples import ChatExample, Example, PreferenceExample, UnpairedExample
from windlass.datasets.inspection import FileSummary, Inspector, inspect_file, read_examples
from windlass.datasets.parsing import parse_example
from windlass.datasets.training_rows import to_training_rows

__all__ = [
    "ChatExample",
    "DatasetError",
    "Example",
    "FileSummary",
    "Inspector",
    "PreferenceExample",
    "Reason",
    "UnpairedExample",
    "formats_for",
    "inspect_file",
    "parse_example",
    "read_examples",
    "to_row",
    "to_training_rows",
]

"""Files as people have them: what holds their rows, and how the rows become examples.

`containers` opens what holds rows (JSON, CSV, Parquet, compressed or not), one module for each
shape makes examples of them, and `conversion` writes a training file. Nothing here holds a whole
file in memory.

May import the modules of `datasets`, none of which imports this.
"""

from windlass.datasets.sources.containers import SourceContainer
from windlass.datasets.sources.conversion import Conversion, convert

__all__ = ["Conversion", "SourceContainer", "convert"]

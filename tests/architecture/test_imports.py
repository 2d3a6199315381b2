"""Imports form no cycle and follow the layers in the architecture page."""

from graphlib import TopologicalSorter

import grimp
from tools.generate_layers import TARGET, page


def test_no_circle() -> None:
    """Imports for type checking count, since a reader follows them as well."""
    graph = grimp.build_graph("windlass", "windlass_agent", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # Raises CycleError, which names a circle's modules in order.
    TopologicalSorter(imported).prepare()


def test_the_page_shows_the_layers_that_are_checked() -> None:
    assert TARGET.read_text() == page(), "run tools/generate_layers.py"

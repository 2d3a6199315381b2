"""Imports form no cycle and follow the layers in the architecture page."""

from collections import defaultdict
from graphlib import TopologicalSorter

import grimp
from tools.generate_layers import TARGET, page


def test_no_circle() -> None:
    """Imports for type checking count, since a reader follows them as well."""
    graph = grimp.build_graph("windlass", "windlass_agent", "windlass_vllm", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    # Raises CycleError, which names a circle's modules in order.
    TopologicalSorter(imported).prepare()


def test_no_circle_of_packages() -> None:
    """The modules and packages of one folder stand on each other in an order."""
    graph = grimp.build_graph("windlass", "windlass_agent", "windlass_vllm", cache_dir=None)
    imports = [
        (name.split("."), other.split("."))
        for name in graph.modules
        for other in graph.find_modules_directly_imported_by(name)
    ]
    siblings = defaultdict[str, dict[str, set[str]]](lambda: defaultdict(set))
    for importer, imported in imports:
        steps = enumerate(zip(importer, imported, strict=False))
        depth = next((step for step, (one, other) in steps if one != other), 0)
        if depth:
            siblings[".".join(importer[:depth])][importer[depth]].add(imported[depth])
    assert len(siblings) > 50
    for folder in siblings.values():
        TopologicalSorter(folder).prepare()


def test_the_page_shows_the_layers_that_are_checked() -> None:
    assert TARGET.read_text() == page(), "run tools/generate_layers.py"

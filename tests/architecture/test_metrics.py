"""Metrics are declared in one place, under the conventions of Prometheus.

https://prometheus.io/docs/practices/naming; most rules are those of `promtool check metrics`.
"""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tools.generate_prometheus_reference import DECLARATIONS, ENGINE, KINDS, ROOT

from windlass.metrics.unlocked import UnlockedCounter, UnlockedHistogram
from windlass_agent.engines.builtin.generation.metrics import EngineMetrics

# Each has few values, and none that a tenant chooses, such as a model's name.
LABELS = {
    "area", "code", "executor", "kind", "loop", "method", "outbox", "outcome", "phase", "pool",
    "reason", "sample", "service", "state", "status", "version",
}  # fmt: skip
# Of engines, of which an agent has few; and of models, whose number `MeasuredModels` bounds.
ENGINE_LABELS = {"engine", "model", "project", "what"}
MODEL_LABELS = {"model", "project", "what"}
OURS = (MetricWrapperBase, UnlockedCounter, UnlockedHistogram)
SOURCES = [ROOT / "services" / "windlass", ROOT / "agent" / "windlass_agent"]
UNITS = ("_seconds", "_bytes")
WRONG_UNITS = re.compile(r"_(ms|millis\w*|minutes|hours|kb|kib|mb|mib|gb|gib|percent)(_|$)")
# `_bucket` and the like belong to histograms, and a type is no part of a name.
TAKEN = re.compile(r"_(bucket|sum|count|created|counter|gauge|histogram|summary)$")


def declared() -> list[Metric]:
    families: list[Metric] = []
    for path in DECLARATIONS.glob("[!_]*.py"):
        module = import_module(f"windlass.metrics.{path.stem}")
        for one in vars(module).values():
            if isinstance(one, OURS):
                families += one.describe()
    engine = EngineMetrics().registry.collect()
    return families + [one for one in engine if one.name.startswith("windlass")]


FAMILIES = declared()


@pytest.mark.parametrize("family", FAMILIES, ids=[one.name for one in FAMILIES])
def test_a_name_keeps_the_conventions(family: Metric) -> None:
    name = family.name + ("_total" if family.type == "counter" else "")
    assert re.fullmatch(r"windlass_[a-z]+(_[a-z]+)*", name)
    assert family.documentation.endswith(".")
    assert not WRONG_UNITS.search(name)
    assert not TAKEN.search(name)
    if family.type == "histogram":
        assert name.endswith(UNITS)
    if family.type != "counter":
        assert not name.endswith("_total")


def test_names_are_unique_and_the_page_is_one_that_prometheus_reads() -> None:
    names = [one.name for one in FAMILIES]
    assert len(names) == len(set(names))
    read = {one.name: one for one in text_string_to_metric_families(generate_latest().decode())}
    ours = {one.name for one in FAMILIES if not one.name.startswith("windlass_engine_")}
    assert ours <= set(read)
    assert read["windlass_build_info"].samples[0].value == 1


def calls() -> list[tuple[Path, ast.Call]]:
    found = []
    for root in SOURCES:
        for path in root.rglob("*.py"):
            text = path.read_text()
            if "prometheus_client" in text:
                tree = ast.parse(text)
                found += [(path, one) for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return [(path, one) for path, one in found if ast.unparse(one.func) in KINDS]


def test_metrics_are_declared_in_one_place() -> None:
    assert len(calls()) > 20
    assert not [path for path, _ in calls() if path.parent != DECLARATIONS and path != ENGINE]


def test_labels_are_few_and_known() -> None:
    for _, call in calls():
        known, name = LABELS, ast.literal_eval(call.args[0])
        if name.startswith("windlass_engine_"):
            known = LABELS | ENGINE_LABELS
        elif name.startswith("windlass_model_"):
            known = LABELS | MODEL_LABELS
        for argument in call.args[2:3]:
            assert set(ast.literal_eval(argument)) <= known

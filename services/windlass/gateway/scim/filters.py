"""Filters of SCIM as filters of the contract."""

from datetime import datetime
from typing import Any

from scim2_models.path import (
    AttributeBinding,
    AttrPath,
    CompareOperator,
    Comparison,
    FilterVisitor,
    LogicalExpr,
    LogicalOperator,
    Not,
    Path,
    Present,
    ScimFilter,
    ValuePath,
    coerce_value,
)

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.gateway.scim.errors import ScimError

FILTER_LENGTH = 2000
_NAMES = {"meta.created": "created_at", "meta.last_modified": "updated_at"}
_PARTS_OF_NAMES = ("formatted", "family_name", "given_name")


def bounded_filter(text: Any) -> str:
    """A filter's text that is short enough to be parsed; raises ScimError."""
    if not isinstance(text, str) or len(text) > FILTER_LENGTH:
        raise ScimError(400, f"A filter has at most {FILTER_LENGTH} characters.", "invalidFilter")
    return text


def contract_filter(given: ScimFilter[Any], model: type[Any]) -> pb.DirectoryFilter:
    """A parsed filter for resources of a model; raises SCIMException and ScimError."""
    bound = ScimFilter.__class_getitem__(model)(str(given))
    return _Translation(bound).visit(bound.ast)


def sort_name(path: Path[Any], model: type[Any]) -> str:
    """The contract's name of the attribute to sort by; raises ScimError."""
    binding = path.resolve(model)
    if binding is None or binding.is_multivalued:
        raise ScimError(400, f"Nothing is sorted by {str(path)[:100]!r}.", "invalidPath")
    return _name(binding)


class _Translation(FilterVisitor[pb.DirectoryFilter]):
    def __init__(self, whole: ScimFilter[Any], within: AttributeBinding | None = None):
        self._whole = whole
        # The attribute with several values in whose brackets this is.
        self._within = within

    def visit_comparison(self, node: Comparison) -> pb.DirectoryFilter:
        binding = self._bound(node.attr_path, compares=True)
        name = self._named(binding)
        if node.value is None:
            present = pb.DirectoryFilter(present=name)
            if node.op == CompareOperator.ne:
                return present
            if node.op == CompareOperator.eq:
                return pb.DirectoryFilter(negated=present)
            raise ScimError(400, "null is compared by eq and ne alone.", "invalidFilter")
        value = coerce_value(binding, node.value, node.op)
        said = pb.DirectoryFilter.Comparison(attribute=name, operator=node.op.value)
        if isinstance(value, bool):
            said.flag = value
        elif isinstance(value, datetime):
            said.at = int(value.timestamp())
        else:
            said.text = _encodable(str(value))
        return pb.DirectoryFilter(comparison=said)

    def visit_present(self, node: Present) -> pb.DirectoryFilter:
        name = self._named(self._bound(node.attr_path, compares=False))
        if name == "name":
            parts = [pb.DirectoryFilter(present=f"name.{part}") for part in _PARTS_OF_NAMES]
            return pb.DirectoryFilter(any_of=pb.DirectoryFilter.Terms(terms=parts))
        return pb.DirectoryFilter(present=name)

    def visit_not(self, node: Not) -> pb.DirectoryFilter:
        return pb.DirectoryFilter(negated=self.visit(node.expr))

    def visit_logical_expr(self, node: LogicalExpr) -> pb.DirectoryFilter:
        terms = pb.DirectoryFilter.Terms(terms=[self.visit(term) for term in node.terms])
        if node.op == LogicalOperator.and_:
            return pb.DirectoryFilter(all_of=terms)
        return pb.DirectoryFilter(any_of=terms)

    def visit_value_path(self, node: ValuePath) -> pb.DirectoryFilter:
        binding = self._bound(node.attr_path, compares=False)
        inner = _Translation(self._whole, binding).visit(node.val_filter)
        selection = pb.DirectoryFilter.Selection(attribute=_name(binding), filter=inner)
        return pb.DirectoryFilter(selection=selection)

    def _bound(self, path: AttrPath, *, compares: bool) -> AttributeBinding:
        if self._within is not None:
            path = AttrPath(attr=self._within.field_name, sub_attr=path.attr)
        resolve = self._whole.resolve_comparison if compares else self._whole.resolve
        found = resolve(path)
        if found is None:
            raise ScimError(400, f"Nothing is filtered by {str(path)[:100]!r}.", "invalidFilter")
        return found

    def _named(self, binding: AttributeBinding) -> str:
        name = _name(binding)
        return name.rpartition(".")[2] if self._within is not None else name


def _encodable(text: str) -> str:
    """A text without half of a surrogate pair, which JSON can write; raises ScimError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ScimError(400, "A value is no Unicode text.", "invalidFilter") from error
    return text


def _name(binding: AttributeBinding) -> str:
    name = binding.field_name
    if binding.sub_field_name:
        name = f"{name}.{binding.sub_field_name}"
    return _NAMES.get(name, name)

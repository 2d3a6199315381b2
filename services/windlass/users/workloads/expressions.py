"""Expressions in CEL that make attributes of a token's claims, in bounded time and memory.

The evaluator of cel-python is not made for hostile expressions: an escape in a text sends its
scanner back and forth without an end, errors within `||` double in size at each of them, and
macros and patterns loop. So an expression has none of these, is short, and does each of its few
operations once.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import celpy
from celpy.adapter import json_to_cel
from celpy.celtypes import BoolType, DoubleType, IntType, StringType
from lark import Token, Tree

from windlass.bounds import ATTRIBUTE_VALUE_LENGTH, EXPRESSION_LENGTH

# The claims of a token.
ASSERTION = "assertion"
MAX_OPERATIONS, MAX_LOGICAL, MAX_NESTING = 24, 8, 8
_FUNCTIONS = frozenset({"has", "size", "string"})
_METHODS = frozenset({"startsWith", "endsWith", "contains", "size"})
_LOGICAL = frozenset({"conditionalor", "conditionaland"})
_OPERATIONS = frozenset({
    "relation", "addition", "multiplication", "unary", "member_dot", "member_dot_arg",
    "member_index", "ident_arg",
})  # fmt: skip
# There are no escapes.
_TEXT = re.compile("\"[^\"]*\"|'[^']*'")
_BRACKETS = {"(": 1, "[": 1, ")": -1, "]": -1}
_ALLOWED = _LOGICAL | _OPERATIONS | {
    "expr", "relation_lt", "relation_le", "relation_gt", "relation_ge", "relation_eq",
    "relation_ne", "relation_in", "addition_add", "addition_sub", "multiplication_mul",
    "multiplication_div", "multiplication_mod", "unary_not", "unary_neg", "member", "primary",
    "literal", "ident", "paren_expr", "list_lit", "exprlist",
}  # fmt: skip
# One, since the parser is shared, and each expression takes a few milliseconds at most.
_THREAD = ThreadPoolExecutor(1, "cel")
_ENVIRONMENT = celpy.Environment()
Attribute = str | bool | int | float


class ExpressionRefused(ValueError):
    """An expression that is not evaluated; the text says why."""


def check(expression: str) -> None:
    """Returns for an expression that may be evaluated; raises ExpressionRefused."""
    _parsed(expression)


def evaluate(expression: str, claims: dict[str, Any]) -> Attribute | None:
    """The value of an expression; None for an error, and for what is no attribute.

    Blocks for some milliseconds.
    """
    try:
        program = _ENVIRONMENT.program(_parsed(expression))
        found = program.evaluate({ASSERTION: json_to_cel(claims)})
    except Exception:
        # A claim is missing, or of another type; whatever it is, it matches nothing.
        return None
    return attribute(_plain(found))


def attribute(value: object) -> Attribute | None:
    """A value that matchers can be compared with; None for others."""
    if isinstance(value, str):
        return value if len(value) <= ATTRIBUTE_VALUE_LENGTH else None
    return value if isinstance(value, bool | int | float) else None


def thread() -> ThreadPoolExecutor:
    """The thread that evaluates expressions."""
    return _THREAD


def _plain(value: object) -> object:
    if isinstance(value, BoolType):
        return bool(value)
    for kind, plain in ((StringType, str), (IntType, int), (DoubleType, float)):
        if isinstance(value, kind):
            return plain(value)
    return value


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> Tree[Token]:
    if not 0 < len(expression) <= EXPRESSION_LENGTH or not expression.isprintable():
        raise ExpressionRefused(f"must have 1 to {EXPRESSION_LENGTH} printable characters")
    if "\\" in expression or '"""' in expression or "'''" in expression:
        raise ExpressionRefused("must have no escapes (\\) and no texts in three quotes")
    _require_flat(expression)
    try:
        tree = _ENVIRONMENT.compile(expression)
    except Exception as error:
        raise ExpressionRefused("is not an expression in CEL") from error
    _require_known(tree)
    return tree


def _require_flat(expression: str) -> None:
    """Raises ExpressionRefused for too many brackets within brackets."""
    depth = deepest = 0
    for character in _TEXT.sub("", expression):
        depth += _BRACKETS.get(character, 0)
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise ExpressionRefused(f"must have at most {MAX_NESTING} brackets within each other")


def _require_known(tree: Tree[Token]) -> None:
    operations = logical = 0
    for node in tree.iter_subtrees():
        name = str(node.data)
        if name not in _ALLOWED:
            raise ExpressionRefused("must have no maps, messages and names with a leading dot")
        # A rule with one child hands on what is below it.
        does = len(node.children) > 1
        operations += name in _OPERATIONS and does
        logical += (name in _LOGICAL or name == "expr") and does
        _require_names(name, node)
    if operations > MAX_OPERATIONS or logical > MAX_LOGICAL:
        raise ExpressionRefused(
            f"must have at most {MAX_OPERATIONS} operations and {MAX_LOGICAL} of ||, && and ?:"
        )


def _require_names(kind: str, node: Tree[Token]) -> None:
    """Raises ExpressionRefused for names of anything but the claims and a few functions."""
    if kind == "ident" and node.children[0] != ASSERTION:
        raise ExpressionRefused(f"must name nothing but {ASSERTION}, such as {ASSERTION}.sub")
    if kind == "ident_arg" and node.children[0] not in _FUNCTIONS:
        raise ExpressionRefused(f"must call no functions but {', '.join(sorted(_FUNCTIONS))}")
    if kind == "member_dot_arg" and node.children[1] not in _METHODS:
        raise ExpressionRefused(f"must call no methods but {', '.join(sorted(_METHODS))}")

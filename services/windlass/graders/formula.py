"""The formula of a `multi` grader: arithmetic over the scores of its graders."""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from windlass.graders.faults import Fault, Ungradable

LONGEST = 1000
DEEPEST = 40

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    # Unlike `**` it makes no complex numbers.
    ast.Pow: math.pow,
}
# By name: the function, and how many arguments it takes (None: two or more).
FUNCTIONS: dict[str, tuple[Callable[..., float], int | None]] = {
    "min": (min, None),
    "max": (max, None),
    "abs": (abs, 1),
    "floor": (math.floor, 1),
    "ceil": (math.ceil, 1),
    "exp": (math.exp, 1),
    "sqrt": (math.sqrt, 1),
    "log": (math.log, 1),
}


class InvalidFormula(ValueError):
    """A formula that is none, or that names what is not there."""


@dataclass(frozen=True)
class Formula:
    """One that is known to hold nothing but numbers, scores, operators and functions."""

    root: ast.expr

    def value(self, scores: Mapping[str, float]) -> float:
        """Returns the result for the scores by name; raises Ungradable when there is none."""
        try:
            result = _value(self.root, scores)
        except (ArithmeticError, ValueError) as error:
            raise Ungradable(Fault.FORMULA, f"calculate_output has no value: {error}.") from None
        if not math.isfinite(result):
            raise Ungradable(Fault.FORMULA, "calculate_output is not a finite number.")
        return result


def compile_formula(text: str, names: frozenset[str]) -> Formula:
    """Reads a formula over scores of those names; raises InvalidFormula."""
    if len(text) > LONGEST:
        raise InvalidFormula(f"is longer than {LONGEST} characters")
    try:
        # OpenAI writes powers as `2 ^ 3`, which Python would bind more loosely than a sum.
        root = ast.parse(" ".join(text.replace("^", "**").split()), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InvalidFormula("must be a formula such as 0.5 * a + max(b, c)") from None
    _check(root, names, DEEPEST)
    return Formula(root)


def _check(node: ast.expr, names: frozenset[str], levels: int) -> None:
    if not levels:
        raise InvalidFormula("is nested too deeply")
    for part in _parts(node, names):
        _check(part, names, levels - 1)


def _parts(node: ast.expr, names: frozenset[str]) -> list[ast.expr]:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            if abs(number) > 1e15:
                raise InvalidFormula("contains a number greater than 1e15")
            return []
        case ast.Name(id=name) if name in names:
            return []
        case ast.Name(id=name):
            raise InvalidFormula(f"uses {name!r}, which is not one of its graders")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return [operand]
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            count = FUNCTIONS[name][1]
            if len(arguments) != count if count else len(arguments) < 2:
                raise InvalidFormula(f"calls {name} with {len(arguments)} arguments")
            return arguments
    raise InvalidFormula(
        f"may contain only numbers, names of graders, + - * / ^ and {', '.join(FUNCTIONS)}"
    )


def _value(node: ast.expr, scores: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return scores[name]
        case ast.UnaryOp(op=operator, operand=operand):
            inner = _value(operand, scores)
            return -inner if isinstance(operator, ast.USub) else inner
        case ast.BinOp(left=left, op=operator, right=right):
            return _OPERATORS[type(operator)](_value(left, scores), _value(right, scores))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return float(FUNCTIONS[name][0](*(_value(each, scores) for each in arguments)))
    raise AssertionError(f"The check of a formula missed {ast.dump(node)}")

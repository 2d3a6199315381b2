"""Reads from the code which reasons its errors carry, and the ends of its jobs."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "services" / "windlass", ROOT / "agent" / "windlass_agent")
ERRORS = "windlass.core.errors"
# Answers that carry a status of HTTP themselves.
ANSWERS = ("HttpError", "ApiError")
# What `modelfiles` raises, which may know no other package: models make an InvalidArgument of it.
TURNED = {"RefusedDocument": "InvalidArgument"}
# Calls that end a job, by the name of their reason where it is not the first argument.
ENDS = {
    "Failure": "code",
    "JobFailure": "code",
    "failure": "",
    "died": "reason",
    "Unrenderable": "",
}
# Of a cluster's federated objects and engines, which are no jobs.
NO_JOBS = (
    "windlass_agent.federation.",
    "windlass_agent.executors.adopted",
    "windlass_agent.executors.kubernetes.engine",
    "windlass_agent.executors.kubernetes.render.engine",
    "windlass_agent.executors.process.trainings",
)
# What an engine that is not ours says.
NOT_OURS = "_text(code)"

Names = Mapping[str, ast.expr]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.AST) -> Iterator[Function]:
    """The functions that are defined anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


@dataclass(frozen=True, order=True)
class Use:
    """A reason at one place: with the name of a class of `core.errors`, or a status of HTTP.

    No reason: the class's default. `…` stands for what is filled in, or is not known here.
    """

    reason: str
    kind: str
    place: str


def uses() -> list[Use]:
    """Every error of the code; raises ValueError for a reason that cannot be read."""
    return sorted({use for name in modules() for use in _Module(name).uses()})


def job_ends() -> dict[str, str]:
    """Each reason or code with which the code ends a job, and a place of it."""
    found: dict[str, str] = {}
    for name in modules():
        if not name.startswith(NO_JOBS):
            found.update(_Module(name).job_ends())
    return found


@cache
def modules() -> dict[str, tuple[str, ast.Module]]:
    """Path and tree of each module that was written by hand."""
    found: dict[str, tuple[str, ast.Module]] = {}
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            if parts[1] != "api":
                name = ".".join(parts).removesuffix(".__init__")
                found[name] = (str(path.relative_to(ROOT)), ast.parse(path.read_text()))
    return found


@cache
def _carriers() -> dict[str, str]:
    """Each class of errors with a reason: the class of `core.errors` that it is."""
    found = {"AppError": "AppError", **TURNED}
    size = 0
    while size < len(found):
        size = len(found)
        for name, (_, tree) in modules().items():
            for node in ast.walk(tree):
                bases = node.bases if isinstance(node, ast.ClassDef) else []
                known = [one.id for one in bases if isinstance(one, ast.Name) and one.id in found]
                if known and isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, node.name if name == ERRORS else found[known[0]])
    return found


@cache
def _makers() -> dict[str, str]:
    """Functions that take a reason and return an error with it, by its class."""
    return {
        node.name: _carriers()[node.returns.id]
        for _, tree in modules().values()
        for node in _functions(tree)
        if isinstance(node.returns, ast.Name)
        and node.returns.id in _carriers()
        and "reason" in _parameters(node)
    }


class _Module:
    """One module."""

    def __init__(self, name: str):
        self._place, self._tree = modules()[name]
        self._constants = _constants(self._tree)

    def uses(self) -> Iterator[Use]:
        for call, local, passed in self._calls():
            name, given = _called(call), {one.arg: one.value for one in call.keywords}
            if name in ANSWERS:
                reason, kind = given.get("code"), _status(call, given)
            elif name in _carriers() or name in _makers():
                reason, kind = given.get("reason"), (_carriers() | _makers())[name]
                if reason is None and name in _carriers():
                    yield Use("", kind, f"{self._place}:{call.lineno}")
            else:
                continue
            for text in self._strings(reason, local, passed) if reason else ():
                yield Use(text, kind, f"{self._place}:{call.lineno}")

    def job_ends(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self._tree):
            for said in _said_of_end(node):
                one = self._constants.get(said.id, said) if isinstance(said, ast.Name) else said
                if isinstance(one, ast.Constant | ast.JoinedStr):
                    yield from ((text, self._place) for text in self._strings(one, {}, set()))

    def _calls(self) -> Iterator[tuple[ast.Call, Names, set[str]]]:
        """Each call, with the local names of its function and the names of its parameters."""
        yield from ((call, {}, set()) for call in _own_calls(self._tree))
        for scope in _functions(self._tree):
            local, passed = _assigned(ast.walk(scope)), _parameters(scope)
            yield from ((call, local, passed) for call in _own_calls(scope))

    def _strings(self, node: ast.expr, local: Names, passed: set[str]) -> Iterator[str]:
        """Every string that an expression may be, but for a reason that is passed on."""
        inner: Iterable[ast.expr] = ()
        match node:
            case ast.Constant(value=str(value)):
                yield from [value] if value else []
            case ast.JoinedStr(values=parts):
                yield "".join(
                    str(getattr(part, "value", "…")) if isinstance(part, ast.Constant) else "…"
                    for part in parts
                )
            case ast.Constant(value=None) | ast.Attribute(attr="reason" | "code"):
                pass
            case ast.Call() if ast.unparse(node) == NOT_OURS:
                pass
            case ast.IfExp(body=first, orelse=second):
                inner = (first, second)
            case ast.BoolOp(values=values) | ast.Dict(values=values):
                inner = values
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[_, *default]):
                inner = (table, *default)
            case ast.Name(id=name) if name in local:
                yield from self._strings(local[name], {}, passed)
            case ast.Name(id=name) if name in passed:
                pass
            case ast.Name(id=name) if name in self._constants:
                yield from self._strings(self._constants[name], {}, set())
            case _:
                where = f"{self._place}:{node.lineno}"
                raise ValueError(f"{where}: write the reason {ast.unparse(node)} as a literal")
        for one in inner:
            yield from self._strings(one, local, passed)


def _said_of_end(node: ast.AST) -> Iterator[ast.expr]:
    """The reasons with which a call, or a tuple, ends a job."""
    items = node.elts if isinstance(node, ast.Tuple) else []
    if isinstance(node, ast.Call):
        items = node.args
        given = {one.arg: one.value for one in node.keywords}
        if (name := _called(node)) in ENDS:
            yield from [given[ENDS[name]]] if ENDS[name] in given else items[:1]
        if _is_failed(given.get("phase")) and "reason" in given:
            yield given["reason"]
    yield from (after for one, after in pairwise(items) if _is_failed(one))


def _is_failed(node: ast.expr | None) -> bool:
    return node is not None and ast.unparse(node) == "pb.PHASE_FAILED"


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _parameters(function: Function) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _own_calls(scope: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function or a module, without those of the functions inside."""
    rest = list(ast.iter_child_nodes(scope))
    while rest:
        node = rest.pop()
        if not isinstance(node, Function):
            rest += ast.iter_child_nodes(node)
            if isinstance(node, ast.Call):
                yield node


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    pairs = ((node.targets[0], node.value) for node in nodes if isinstance(node, ast.Assign))
    return {name.id: value for name, value in pairs if isinstance(name, ast.Name)}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The names of a module, those too that it imports from another of ours."""
    found = _assigned(tree.body)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in modules():
            theirs = _assigned(modules()[node.module][1].body)
            names = {one.name for one in node.names}
            found |= {name: value for name, value in theirs.items() if name in names}
    return found


def _status(call: ast.Call, given: Mapping[str | None, ast.expr]) -> str:
    node = call.args[0] if _called(call) == "HttpError" else given.get("status", ast.Constant(400))
    if isinstance(node, ast.Attribute) and node.attr in HTTPStatus.__members__:
        return str(HTTPStatus[node.attr].value)
    return str(node.value) if isinstance(node, ast.Constant) else "…"

"""Mutants of one module: its syntax tree with one thing changed."""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn},
    **{ast.NotIn: ast.In, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
}
_CALCULATED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr},
}
_CALLED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NOT_CODE: Final = (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom, ast.Raise)
"""Texts for people, and assertions about our own code. A raise is removed, not changed."""
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOT_FIELDS: Final = {"annotation", "returns", "decorator_list", "bases", "keywords", "type_params"}
"""Parts of a definition that are not its behaviour. `keywords` of a call are mutated."""


class Mutant(msgspec.Struct, frozen=True):
    """One change: its position, the original and the replacement; `again` counts equal ones before it."""

    file: str
    line: int
    where: str
    was: str
    now: str
    again: int
    change: tuple[ast.Module, ast.AST, ast.AST]

    @property
    def name(self) -> str:
        """The same for the same change after the file was edited elsewhere."""
        again = f" #{self.again + 1}" if self.again else ""
        return f"{self.file} {self.where}: {self.was} -> {self.now}{again}"

    @property
    def lines(self) -> range:
        """The lines of the changed code; only of the condition, if that is negated or made false."""
        node = self.change[1]
        end = node.test if isinstance(node, ast.If) else node
        return range(self.line, (getattr(end, "end_lineno", None) or self.line) + 1)

    def trees(self) -> tuple[ast.Module, ast.Module]:
        """The module's syntax tree, and the same with the change."""
        tree, old, new = self.change
        return tree, ast.fix_missing_locations(_Replacing(old, new).visit(tree))

    def text(self) -> str:
        """The module's text with the change."""
        return ast.unparse(self.trees()[1])


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its text."""
    seen: Counter[tuple[str, str, str]] = Counter()
    tree = ast.parse(text)
    for where, node in _sites(tree, ""):
        for changed in _changes(node):
            was, now = _short(node), _short(changed)
            again = seen[where, was, now]
            seen[where, was, now] += 1
            line = getattr(node, "lineno", 0)
            yield Mutant(file, line, where, was, now, again, (tree, node, changed))


def _sites(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    """The nodes that may be changed, with their function."""
    for name, value in ast.iter_fields(node):
        if name in _NOT_FIELDS and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_declared(child):
                inside = f"{where}.{child.name}".lstrip(".") if isinstance(child, _DEFINITIONS) else where
                yield inside, child
                if not isinstance(child, _NOT_CODE):
                    yield from _sites(child, inside)


def _is_declared(node: ast.AST) -> bool:
    """A docstring, a type alias, or a name of fields."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id.startswith("__") for target in node.targets)
    return False


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The replacements of a node."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    elif isinstance(node, ast.expr):
        yield from _of_expression(node)


def _of_statement(node: ast.stmt) -> Iterator[ast.AST]:
    removed = ast.Pass()
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Delete):
        yield removed
    elif isinstance(node, ast.If):
        yield _changed(node, test=ast.UnaryOp(ast.Not(), node.test))
        if not node.orelse:
            yield removed
    elif isinstance(node, ast.Return) and not (node.value is None or _is_none(node.value)):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute | ast.Subscript):
        yield removed


def _of_expression(node: ast.expr) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        flipped = _COMPARED[type(node.ops[0])]
        yield _changed(node, ops=[flipped(), *node.ops[1:]])
    elif isinstance(node, ast.BoolOp):
        yield _changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for n in range(len(node.values)):
            rest = [*node.values[:n], *node.values[n + 1 :]]
            yield rest[0] if len(rest) == 1 else _changed(node, values=rest)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in _CALCULATED:
        yield _changed(node, op=_CALCULATED[type(node.op)]())
    elif isinstance(node, ast.IfExp) and not isinstance(node.body, ast.JoinedStr):
        yield _changed(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield _changed(node, func=ast.Name(_CALLED[node.func.id], ast.Load()))
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node.value)


def _of_constant(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and value.isidentifier():
        yield ast.Constant(f"{value}_")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _changed(node: Any, **fields: Any) -> Any:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class _Replacing(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Not in place: the tree is used for the next mutant."""
        if node is self._old:
            return self._new
        made = copy.copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(made, name, self.visit(value))
            elif isinstance(value, list):
                setattr(made, name, [self.visit(item) if isinstance(item, ast.AST) else item for item in value])
        return made


def _short(node: ast.AST) -> str:
    """A node in one line."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:60]}...{text[-27:]}"

"""Lists the single-point mutants of a source file.

**Idea.** A mutant is the file with one expression or statement replaced. Nodes are read off the syntax tree, and only
the node's own text is replaced: the rest of the file, and its line numbers, stay.

| what is changed | into |
|---|---|
| `<` `>` `<=` `>=` | with and without equality, and the opposite |
| `==` `in` `is` | `!=`, `not in`, `is not`, and back |
| `and`, `+`, `*` | `or`, `-`, `//`, and back |
| `not x`; the test of an `if`, `while` or condition | `x`; its negation |
| a whole number; `True` | one more and one less; `False`, and back |
| `f(a, b)`, `a if test else b` | `f(b, a)`, `b if test else a` |
| a call, an augmented assignment, an assignment to an attribute or item, `raise`, `continue`, `break` | `pass` |

Left alone: annotations, decorators, docstrings, the texts of errors (all within `raise` and f-strings), `strict=` of
`zip`, `assert`, and what stands under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_Scope = tuple[str, bool]  # qualified name, and whether it is a function


@dataclass(frozen=True)
class Mutant:
    """One changed place, from byte `start` to `end`.

    `scope`: the qualified name of the function or class around it, as code objects have it ("" for the module);
    `nth` counts equal changes within it.
    """

    path: str
    scope: str
    function: bool
    line: int
    old: str
    new: str
    nth: int
    start: int
    end: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What names this mutant in the list of equivalent ones, whatever is written above it."""
        return self.path, self.scope, self.old, self.new, self.nth

    def __str__(self) -> str:
        nth = f" (nth {self.nth})" if self.nth else ""
        return f"{self.path}:{self.line} {self.scope or '<module>'}: {self.old} -> {self.new}{nth}"

    def apply(self, source: bytes) -> bytes:
        """Return the changed file."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def compiles(self, source: bytes) -> bool:
        """Return whether the changed file is Python."""
        try:
            compile(self.apply(source), self.path, "exec")
        except SyntaxError:
            return False
        return True


def mutants(root: Path, path: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of the text."""
    source = (root / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found, seen = [], Counter[tuple[str, str, str]]()
    for node, new, (scope, function) in _changes(ast.parse(source), ("", False)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        old = " ".join(source[start:end].decode().split())
        place = scope, old, new
        mutant = Mutant(path, scope, function, node.lineno, old, new, seen[place], start, end)
        seen[place] += 1
        found.append(mutant)
    return found


def _changes(node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.expr | ast.stmt, str, _Scope]]:
    """Yield node, new text and scope of each change below a node."""
    for field, child in _children(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _defaults(child, scope)
            around = f"{scope[0]}.<locals>." if scope[1] else f"{scope[0]}." if scope[0] else ""
            inner = around + child.name, not isinstance(child, ast.ClassDef)
        if isinstance(child, ast.expr | ast.stmt):
            for new in _new(child, asked=field == "test" and not isinstance(node, ast.Assert)):
                yield child, new, inner
        if not _untouched(child):
            yield from _changes(child, inner)


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if field in ("decorator_list", "annotation", "returns", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


def _defaults(node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.expr | ast.stmt, str, _Scope]]:
    """Yield the changes of a function's defaults: they belong to the scope around it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                yield from ((default, new, scope) for new in _new(default, asked=False))


def _untouched(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Assert() | ast.keyword(arg="strict"):
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test)
    return False


def _new(node: ast.expr | ast.stmt, *, asked: bool) -> list[str]:
    """Return what a node may be changed into."""
    found: list[str] = []
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in _COMPARED[type(op)]:
                found.append(ast.unparse(ast.Compare(left, [other()], [right])))
        case ast.Compare(left=left, ops=[one, two], comparators=right):
            found += [ast.unparse(ast.Compare(left, [o(), two], right)) for o in _COMPARED[type(one)][:1]]
            found += [ast.unparse(ast.Compare(left, [one, o()], right)) for o in _COMPARED[type(two)][:1]]
        case ast.BoolOp(op=op, values=values):
            found.append(ast.unparse(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found.append(ast.unparse(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTED and not _text(left, right):
            found.append(ast.unparse(ast.BinOp(left, _COUNTED[type(op)](), right)))
        case ast.Constant(value=bool(value)):
            found.append(str(not value))
        case ast.Constant(value=int(value)):
            found += [str(value + 1), str(value - 1)]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            found.append(ast.unparse(ast.IfExp(test, orelse, body)))
        case ast.Call(func=func, args=[one, two, *rest], keywords=keywords) if not _same(func, one, two):
            found.append(ast.unparse(ast.Call(func, [two, one, *rest], keywords)))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            found.append("pass")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            found.append("pass")
    if asked and isinstance(node, ast.expr) and not isinstance(node, ast.Compare):
        found.append(ast.unparse(ast.UnaryOp(ast.Not(), node)))
    return [
        f"({new})" if isinstance(node, ast.expr) and not isinstance(node, ast.Constant) else new
        for new in found
    ]


def _text(*nodes: ast.expr) -> bool:
    """Return whether this is the joining of texts, where a minus is no mutant but a crash."""
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in nodes
    )


def _same(function: ast.expr, one: ast.expr, two: ast.expr) -> bool:
    """Return whether two arguments may be swapped without any effect, or may not be swapped."""
    starred = isinstance(one, ast.Starred) or isinstance(two, ast.Starred)
    name = ast.unparse(function).rpartition(".")[2]
    return starred or name in ("min", "max", "minimum", "maximum", "gcd") or ast.dump(one) == ast.dump(two)

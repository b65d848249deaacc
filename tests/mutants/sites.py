"""Draws mutants from the syntax of the product: places in its code where one small change makes another program.

Nothing is changed in texts, log calls, annotations, assertions, ``__repr__`` and ``__str__``, because that changes no
behaviour. A mutant is known by a hash of its function, without docstring and with numbered locals, and by its place
in there: a function that moves to another file takes its mutants along.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from tests.mutants.source import MODULE, ROOT, Function, functions, product_files, replaced

NUMBER_MAX: Final = 64
"""Larger numbers are bounds and time-outs: one more of them is the same program."""
COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
FACTORS: Final = (1000, 1_000_000, 1_000_000_000)
"""Between seconds and their thousandths."""
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log", "warn"})
LOGS: Final = frozenset({"log", "_log", "state_change", "logging", "limited_log", "_limited_log"})
EMPTY: Final = {"list": "[]", "Sequence": "[]", "Iterable": "[]", "Collection": "()", "tuple": "()", "dict": "{}"}
EMPTY_MORE: Final = {"Mapping": "{}", "set": "set()", "frozenset": "frozenset()", "bytes": 'b""', "int": "0"}
SILENT: Final = frozenset({"__repr__", "__str__"})


class Site(NamedTuple):
    """A change: of the span of ``node`` into ``new``; ``what`` describes it."""

    node: ast.expr | ast.stmt
    new: str
    what: str


class Generated(NamedTuple):
    """A mutant that was drawn: the text between ``first`` and ``last`` becomes ``new``."""

    id: str
    file: str
    function: str
    wrong: str
    first: tuple[int, int]
    last: tuple[int, int]
    new: str

    @property
    def mutant(self) -> str:
        """Returns the text of the file with the change."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        mutant = replaced(text, self.first, self.last, self.new)
        compile(mutant, self.file, "exec")
        return mutant


@cache
def all_generated() -> tuple[Generated, ...]:
    """Lists every mutant of the product."""
    found: dict[str, Generated] = {}
    for file in product_files():
        for mutant in _of_file(file):
            copies = 0
            while mutant.id in found:
                copies += 1
                mutant = mutant._replace(id=f"{mutant.id.partition('~')[0]}~{copies}")
            found[mutant.id] = mutant
    return tuple(found.values())


def drawn(count: int, seed: int) -> list[Generated]:
    """Draws mutants, at most one of a line: each line of code has the same chance."""

    def rank(mutant: Generated) -> str:
        return hashlib.sha256(f"{seed} {mutant.id}".encode()).hexdigest()

    lines: dict[tuple[str, int], Generated] = {}
    for mutant in sorted(all_generated(), key=rank):
        lines.setdefault((mutant.file, mutant.first[0]), mutant)
    return list(lines.values())[:count]


def _of_file(file: str) -> Iterator[Generated]:
    text = (ROOT / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    rows = text.splitlines()
    parts: list[tuple[str, ast.AST]] = list(functions(tree).items())
    parts += [(MODULE, node) for node in _constants(tree)]
    for name, part in parts:
        digest = _digest(part)
        for at, site in enumerate(_Sites(part).found):
            node = site.node
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            first = node.lineno, _column(rows, node.lineno, node.col_offset)
            last = node.end_lineno, _column(rows, node.end_lineno, node.end_col_offset)
            yield Generated(f"{digest}-{at}", file, name, f"line {node.lineno}: {site.what}", first, last, site.new)


def _column(rows: list[str], line: int, offset: int) -> int:
    return len(rows[line - 1].encode()[:offset].decode())


def _constants(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields assignments of modules and classes, outside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _constants(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            yield node


def _digest(part: ast.AST) -> str:
    bare = copy.deepcopy(part)
    if isinstance(bare, Function) and ast.get_docstring(bare) is not None:
        bare.body = bare.body[1:] or [ast.Pass()]
    locals_: dict[str, str] = {}
    for node in ast.walk(bare):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and isinstance(part, Function):
            locals_.setdefault(node.id, f"_{len(locals_)}")
    for node in ast.walk(bare):
        if isinstance(node, ast.Name) and node.id in locals_:
            node.id = locals_[node.id]
    return hashlib.sha256(ast.unparse(bare).encode()).hexdigest()[:12]


class _Sites(ast.NodeVisitor):
    def __init__(self, part: ast.AST) -> None:
        self.found: list[Site] = []
        self._returns = ""
        if isinstance(part, Function):
            if part.name in SILENT or any(_names(one) & {"overload", "abstractmethod"} for one in part.decorator_list):
                return
            self._returns = ast.unparse(part.returns) if part.returns is not None else ""
            self.visit(part.args)
            for statement in part.body:
                self.visit(statement)
        elif isinstance(part, (ast.Assign, ast.AnnAssign)) and part.value is not None:
            self.visit(part.value)

    def _add(self, node: ast.expr | ast.stmt, new: str | ast.expr, what: str) -> None:
        text = new if isinstance(new, str) else f"({ast.unparse(new)})"
        self.found.append(Site(node, text, what))

    def visit_arg(self, node: ast.arg) -> None:
        """Leaves annotations alone."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leaves texts alone."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leaves the texts of errors alone."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leaves assertions alone."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Leaves the arguments of generic types alone."""
        self.visit(node.value)
        if not (isinstance(node.value, ast.Name) and node.value.id[0].isupper()) and not _is_type(node.value):
            self.visit(node.slice)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._nested(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._nested(node)

    def _nested(self, node: Function) -> None:
        outer, self._returns = self._returns, ast.unparse(node.returns) if node.returns is not None else ""
        for statement in node.body:
            self.visit(statement)
        self._returns = outer

    def visit_If(self, node: ast.If) -> None:
        if _names(node.test) != {"TYPE_CHECKING"}:
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, op in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[at] = COMPARED[type(op)]()
            self._add(node, other, f"{type(op).__name__} becomes {COMPARED[type(op)].__name__}")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, ast.BoolOp(op, node.values), f"{'and' if isinstance(op, ast.Or) else 'or'} becomes the other")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, node.operand, "not is left out")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        by_factor = isinstance(node.right, ast.Constant) and node.right.value in FACTORS
        if by_factor and isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv)):
            self._add(node, node.left, "a factor between units of time is left out")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int and node.value <= NUMBER_MAX:
            self._add(node, str(node.value + 1), f"{node.value} becomes {node.value + 1}")
            if node.value:
                self._add(node, str(node.value - 1), f"{node.value} becomes {node.value - 1}")

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if isinstance(default, ast.Constant) and type(default.value) is bool:
                self._add(default, str(not default.value), f"a default becomes {not default.value}")
            elif default is not None:
                self.visit(default)

    def visit_Call(self, node: ast.Call) -> None:
        if _logs(node):
            return
        for keyword in node.keywords:
            value = keyword.value
            if isinstance(value, ast.Constant) and type(value.value) is bool and keyword.arg is not None:
                self._add(value, str(not value.value), f"{keyword.arg} becomes {not value.value}")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        new = _empty(self._returns, node.value)
        if ast.unparse(node.value) != new:
            self._add(node, f"return {new}", f"returns {new}")
        self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _logs(call):
            self._add(node, "pass", f"{ast.unparse(call.func)}() is not called")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, (ast.Subscript, ast.Attribute)) for target in node.targets):
            self._add(node, "pass", f"{ast.unparse(node.targets[0])} is not set")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass", f"{ast.unparse(node.target)} is not updated")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        if all(isinstance(target, ast.Subscript) for target in node.targets):
            self._add(node, "pass", f"{ast.unparse(node.targets[0])} is not deleted")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break", "continue becomes break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue", "break becomes continue")


def _empty(returns: str, value: ast.expr) -> str:
    head = returns.partition("[")[0].strip()
    if head == "bool":
        return "True" if isinstance(value, ast.Constant) and value.value is False else "False"
    return (EMPTY | EMPTY_MORE).get(head, "None")


def _logs(call: ast.Call) -> bool:
    of = call.func
    if not isinstance(of, ast.Attribute) or of.attr not in LEVELS:
        return False
    return (of.value.id if isinstance(of.value, ast.Name) else getattr(of.value, "attr", "")) in LOGS


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"list", "dict", "set", "tuple", "frozenset", "deque", "type"}


def _names(node: ast.expr) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}

"""Holds the znodes of the in-memory ZooKeeper: transactions, versions, permissions, in the real server's order.

It is pure and has no sessions, watches or clock. A transaction is all or nothing and returns the paths that it touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from metadata_store.acl import ADMIN, CREATE, DELETE, OPEN, READ, WRITE, Acl
from metadata_store.errors import Code, MultiFailed, ZkError
from metadata_store.port import (
    ANY_VERSION,
    Check,
    Create,
    Created,
    Delete,
    Node,
    OpResult,
    SetAcls,
    SetData,
    Stat,
    WatchKind,
    Write,
)
from testing.memory.permissions import AccessRefused, Identity, allowed, expanded, masked


class Touched(NamedTuple):
    """The event of a path (CHILD where a child came or went), and the ACL list of the sessions that receive it."""

    kind: WatchKind
    path: str
    acls: tuple[Acl, ...]


class _Znode:
    __slots__ = ("acl_version", "acls", "children", "created", "czxid", "data", "mzxid", "owner", "pzxid", "version")

    def __init__(self, data: bytes | None, acls: tuple[Acl, ...], owner: int, zxid: int) -> None:
        self.data, self.acls, self.owner = data, acls, owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.version = self.acl_version = self.created = 0
        self.children: dict[str, None] = {}

    def copy(self) -> _Znode:
        copied = copy(self)
        copied.children = dict(self.children)
        return copied

    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.version, self.owner, len(self.children), self.pzxid, self.acl_version)

    def allows(self, perms: int, identity: Identity) -> None:
        if not allowed(self.acls, perms, identity):
            raise AccessRefused(Code.NO_AUTH)


def parent_of(path: str) -> str:
    """Returns the path of the parent."""
    return path.rpartition("/")[0] or "/"


def _expect(expected: int, version: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise AccessRefused(Code.BAD_VERSION)


class Tree:
    """All znodes. ``zxid`` is of the last transaction."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": _Znode(None, OPEN, 0, 0)}
        self._undo: list[Callable[[], object]] = []
        self._touched: list[Touched] = []

    def copy(self) -> Tree:
        """Returns the same znodes as a tree of its own."""
        copied = Tree()
        copied.zxid = self.zxid
        copied._nodes = {path: node.copy() for path, node in self._nodes.items()}
        return copied

    # -- reading

    def every(self) -> dict[str, Node]:
        """Returns all znodes by path, for any session."""
        return {path: Node(found.data, found.stat()) for path, found in self._nodes.items()}

    def node(self, path: str, identity: Identity) -> Node | Code:
        """Returns a znode, or the code of its refusal."""
        found = self._nodes.get(path)
        if found is None:
            return Code.NO_NODE
        try:
            found.allows(READ, identity)
        except AccessRefused as refused:
            return refused.code
        return Node(found.data, found.stat())

    def nodes(self, paths: Iterable[str], identity: Identity) -> list[Node | Code]:
        """Returns many znodes at one instant."""
        return [self.node(path, identity) for path in paths]

    def stat(self, path: str) -> Stat | None:
        """Returns the stat, for any session."""
        found = self._nodes.get(path)
        return found.stat() if found is not None else None

    def exists(self, path: str, identity: Identity) -> Stat | None:
        """Returns the stat; needs the permission to read, as on servers since 3.8.4."""
        found = self.node(path, identity)
        if found is Code.NO_AUTH:
            raise ZkError(found, path)
        return found.stat if isinstance(found, Node) else None

    def children(self, path: str, identity: Identity) -> tuple[list[str], Stat] | None:
        """Returns children in the order of their creation."""
        found = self._nodes.get(path)
        if found is None:
            return None
        try:
            found.allows(READ, identity)
        except AccessRefused as refused:
            raise ZkError(refused.code, path) from None
        return list(found.children), found.stat()

    def acls(self, path: str, identity: Identity) -> tuple[list[Acl], Stat]:
        """Returns the ACL list and stat."""
        try:
            found = self._get(path)
            found.allows(READ | ADMIN, identity)
        except AccessRefused as refused:
            raise ZkError(refused.code, path) from None
        shown = found.acls if allowed(found.acls, ADMIN, identity) else masked(found.acls)
        return list(shown), found.stat()

    def ephemerals(self, owner: int) -> Iterator[str]:
        """Returns paths that end with a session."""
        return (path for path, found in self._nodes.items() if found.owner == owner)

    # -- writing

    def single(self, op: Write, identity: Identity, session: int) -> tuple[OpResult, list[Touched]]:
        """Applies one write; raises :class:`ZkError`."""
        try:
            [result], touched = self._transaction([op], identity, session)
        except MultiFailed as failed:
            raise ZkError(failed.code, failed.path) from None
        return result, touched

    def multi(self, ops: Sequence[Write], identity: Identity, session: int) -> tuple[list[OpResult], list[Touched]]:
        """Applies all writes or none; raises :class:`MultiFailed`."""
        return self._transaction(ops, identity, session)

    def end_session(self, session: int) -> list[Touched]:
        """Deletes the ephemeral znodes of a session in one transaction."""
        paths = list(self.ephemerals(session))
        self._begin()
        for path in paths:
            self._remove(path)
        return self._touched

    def _transaction(
        self, ops: Sequence[Write], identity: Identity, session: int
    ) -> tuple[list[OpResult], list[Touched]]:
        self._begin()
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._perform(op, identity, session))
            except AccessRefused as refused:
                self._roll_back()
                later = [Code.RUNTIME_INCONSISTENCY] * (len(ops) - index - 1)
                raise MultiFailed(index, [Code.OK] * index + [refused.code] + later, op.path) from None
        return results, self._touched

    def _begin(self) -> None:
        self.zxid += 1
        self._undo, self._touched = [], []

    def _touch(self, kind: WatchKind, path: str, acls: tuple[Acl, ...]) -> None:
        self._touched.append(Touched(kind, path, acls))

    def _roll_back(self) -> None:
        for undo in reversed(self._undo):
            undo()

    def _perform(self, op: Write, identity: Identity, session: int) -> OpResult:
        if isinstance(op, Create):
            return self._create(op, identity, session)
        if isinstance(op, SetData):
            return self._set(op, identity)
        if isinstance(op, SetAcls):
            return self._set_acls(op, identity)
        if isinstance(op, Delete):
            self._delete(op, identity)
        else:
            self._check(op, identity)
        return None

    def _get(self, path: str) -> _Znode:
        found = self._nodes.get(path)
        if found is None:
            raise AccessRefused(Code.NO_NODE)
        return found

    def _remember(self, node: _Znode) -> None:
        """Records the fields of ``node`` for an undo."""
        before = [(name, getattr(node, name)) for name in _Znode.__slots__ if name != "children"]

        def undo() -> None:
            for name, value in before:
                setattr(node, name, value)

        self._undo.append(undo)

    def _create(self, op: Create, identity: Identity, session: int) -> Created:
        acls = expanded(OPEN if op.acl is None else op.acl, identity)
        parent_path = parent_of(op.path)
        parent = self._get(parent_path)
        parent.allows(CREATE, identity)
        path = f"{op.path}{parent.created:010d}" if op.sequential else op.path
        if path in self._nodes:
            raise AccessRefused(Code.NODE_EXISTS)
        if parent.owner:
            raise AccessRefused(Code.NO_CHILDREN_FOR_EPHEMERALS)
        self._remember(parent)
        parent.created += 1
        parent.pzxid = self.zxid
        name = path.rpartition("/")[2]
        node = self._nodes[path] = _Znode(op.data, acls, session if op.ephemeral else 0, self.zxid)
        parent.children[name] = None
        self._undo.append(lambda: (self._nodes.pop(path), parent.children.pop(name)))
        self._touch(WatchKind.CREATED, path, acls)
        self._touch(WatchKind.CHILD, parent_path, parent.acls)
        return Created(path, node.stat())

    def _set(self, op: SetData, identity: Identity) -> Stat:
        node = self._get(op.path)
        node.allows(WRITE, identity)
        _expect(op.version, node.version)
        self._remember(node)
        node.data, node.mzxid, node.version = op.data, self.zxid, node.version + 1
        self._touch(WatchKind.CHANGED, op.path, node.acls)
        return node.stat()

    def _delete(self, op: Delete, identity: Identity) -> None:
        parent = self._get(parent_of(op.path))
        parent.allows(DELETE, identity)
        node = self._get(op.path)
        _expect(op.version, node.version)
        if node.children:
            raise AccessRefused(Code.NOT_EMPTY)
        self._remove(op.path)

    def _remove(self, path: str) -> None:
        parent_path, name = parent_of(path), path.rpartition("/")[2]
        node, parent = self._nodes.pop(path), self._nodes[parent_path]
        self._remember(parent)
        siblings = list(parent.children)
        del parent.children[name]
        parent.pzxid = self.zxid
        self._undo.append(lambda: self._restore(path, node, parent, siblings))
        self._touch(WatchKind.DELETED, path, node.acls)
        self._touch(WatchKind.CHILD, parent_path, parent.acls)

    def _restore(self, path: str, node: _Znode, parent: _Znode, siblings: list[str]) -> None:
        self._nodes[path] = node
        parent.children = dict.fromkeys(siblings)

    def _check(self, op: Check, identity: Identity) -> None:
        node = self._get(op.path)
        node.allows(READ, identity)
        _expect(op.version, node.version)

    def _set_acls(self, op: SetAcls, identity: Identity) -> Stat:
        acls = expanded(op.acls, identity)
        node = self._get(op.path)
        node.allows(ADMIN, identity)
        _expect(op.version, node.acl_version)
        self._remember(node)
        node.acls, node.acl_version = acls, node.acl_version + 1
        return node.stat()

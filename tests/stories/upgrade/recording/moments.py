"""Writes moments: what a ``kill -9`` of the daemon would leave before or after one of its writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

SESSION: Final = "the daemon"


def former(name: str) -> Any:
    """Imports a module of the checkout; its name has spaces for dots, so that no renaming in this revision finds it."""
    return import_module(name.replace(" ", "."))


class Moments:
    """Writes the moments of one case, each as what changed since the one before. ``look`` reads the store."""

    def __init__(self, case: str, lines: list[str], look: Callable[[], dict[str, Any]]) -> None:
        self._case = case
        self._lines = lines
        self._look = look
        self._known: dict[str, Any] = {}
        self._around: object = None
        self._entries = 0

    def note(self, when: str, around: object, entries: list[Any]) -> None:
        """Notes a moment, unless nothing has changed.

        ``around``: what brokers or servers have; ``entries``: those of the journal so far.
        """
        found, around = self._look(), json.loads(json.dumps(around))
        changed = {name: one for name, one in found.items() if self._known.get(name) != one}
        gone = sorted(self._known.keys() - found.keys())
        if not changed and not gone and around == self._around:
            return
        journal = b"".join(data for entry in entries[self._entries :] for data in _encoded(entry)).decode().splitlines()
        line: dict[str, Any] = {"when": when, "changed": changed, "gone": gone, "journal": journal}
        if around != self._around:
            line["around"] = around
        self._lines.append(json.dumps({key: one for key, one in line.items() if one}))
        self._known, self._around, self._entries = found, around, len(entries)

    def end(self, left: object, nonces: Mapping[str, str]) -> None:
        """Notes what the clean run leaves, and the nonces of clients by kind."""
        self._lines.append(json.dumps({"case": self._case, "end": plain(left), "nonces": nonces}))


def _encoded(entry: Any) -> Iterator[bytes]:
    return (data for _, data in former("controller journal journal").encoded(entry))


def plain(value: Any) -> Any:
    """Returns a value as JSON has it, the same for equal values of every revision."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((plain(one) for one in value), key=str)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, str | bool) else int(value)


def znodes(server: Any, owners: Mapping[int, str]) -> dict[str, Any]:
    """Returns all znodes of an in-memory ZooKeeper by path, and its last zxid."""
    acl = former("metadata_store acl")
    found: dict[str, Any] = {}
    for path, node in server.tree._nodes.items():
        data = None if node.data is None else node.data.decode("latin-1")
        numbers = [node.version, node.acl_version, node.created, node.czxid, node.mzxid, node.pzxid]
        owner = owners.get(node.owner, SESSION) if node.owner else ""
        acls = [] if node.acls == acl.OPEN else [[[one.perms, one.scheme, one.id] for one in node.acls]]
        found[path] = [data, owner, numbers, *acls]
    return found | {"zxid": server.tree.zxid}


def steps(kinds: Any) -> str:
    """Returns a line with the names of all steps by kind."""
    return json.dumps({"kinds": {kind.name: [step.name for step in kind.steps] for kind in kinds}})

"""Closes regent's own znodes that any client may write: they were made while the cluster was open.

Entries for other identities stay, because an operator may have meant them, and are shown.

The walk goes from a parent to its children, in portions, and may be repeated at any time. A parent of very many
children is closed after them: as long as it is open, all of them are looked at again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Final

from msgspec import Struct, field

from metadata_store.acl import Acl
from metadata_store.errors import Code, ZkError
from metadata_store.own import (
    Access,
    Identities,
    access_of,
    given_acls,
    is_open,
    own_path,
    perms_text,
    shell_text,
    strangers,
)
from metadata_store.port import Stat, ZooKeeper
from state_machines.portions import portions

log = logging.getLogger("regent.role")

PORTION: Final = 200
"""Znodes that are looked at, or closed, side by side."""
Seen = tuple[str, Sequence[Acl], Stat | None]
NAMED_MAX: Final = 5
"""Znodes that a line of the log names."""
AGAIN_S: Final = 600.0
"""Pause until the znodes of a complaint are looked at again."""
AGAIN_MAX: Final = 1_000
"""Znodes of each complaint that are looked at again."""


class Closed(Struct):
    """The outcome of a walk. ``left``: znodes that stay open, because another client took the right to close them.

    ``shared``: how many other identities may write; ``first_shared``: the first of them, each with its remedy.
    ``shared_paths``: those that are looked at again; ``unlisted``: how many are not.
    """

    looked_at: int = 0
    closed: int = 0
    left: list[str] = field(default_factory=list)
    shared: int = 0
    first_shared: list[str] = field(default_factory=list)
    shared_paths: list[str] = field(default_factory=list)
    unlisted: int = 0

    def tell(self, root: str) -> None:
        """Logs a walk that found open znodes."""
        if self.closed:
            log.info("%d znodes below %s were open to any client, and are closed now", self.closed, root)
        if complaint := self.complaint:
            log.warning("%s", complaint)

    @property
    def complaint(self) -> str:
        """Returns the faults of the ACLs that stay, with the remedies; empty without any."""
        return "; ".join(one for one in (self._open, self.others) if one)

    @property
    def others(self) -> str:
        """Returns which other identities may write, each with the command that ends it; empty without any."""
        if not self.shared:
            return ""
        named = self.first_shared
        more = [f"{self.shared - len(named)} more znodes are like that"] if self.shared > len(named) else []
        later = [f"the next term looks at {self.unlisted} of them again"] if self.unlisted else []
        return (
            f"identities that no setting names may write: {'; '.join((*named, *more, *later))}. Where none of that is "
            "meant, give these commands to zookeeper-shell.sh, with the daemon's identity"
        )

    def add_shared(self, path: str, found: Sequence[Acl], wanted: Sequence[Acl], mine: Identities) -> None:
        """Notes a znode that other identities may write."""
        self.shared += 1
        if len(self.shared_paths) < AGAIN_MAX:
            self.shared_paths.append(path)
        else:
            self.unlisted += 1
        if self.shared <= NAMED_MAX:
            names = ", ".join(f"{one.scheme}:{_shown(one)} ({perms_text(one.perms)})" for one in found)
            self.first_shared.append(f"{path} by {names}, until 'setAcl {path} {shell_text(wanted, mine)}'")

    def add_unseen(self, before: Closed) -> None:
        """Adds what an earlier walk found and this one did not look at."""
        self.left += before.left[AGAIN_MAX:]
        self.shared += before.unlisted
        self.unlisted += before.unlisted

    @property
    def _open(self) -> str:
        if not self.left:
            return ""
        more = f" and {len(self.left) - NAMED_MAX} more" if len(self.left) > NAMED_MAX else ""
        return (
            f"any client may write {', '.join(self.left[:NAMED_MAX])}{more}, by an ACL that another client has set: "
            "give it the ACL of its siblings as ZooKeeper's super user, or delete it with what it stood for"
        )


async def unfenced() -> None:
    """Permits the change: it belongs to no term."""


async def close_tree(
    zk: ZooKeeper,
    root: str,
    *,
    without: Collection[str] = (),
    depth: int | None = None,
    may_write: Callable[[], Awaitable[None]] = unfenced,
    only_look: bool = False,
    looked_at_max: int | None = None,
) -> Closed:
    """Closes ``root`` and what is below it; raises what the port raises, and what ``may_write`` raises.

    ``without``: znodes that are left out with what is below them. ``depth``: levels below ``root``, None for all.
    ``may_write`` is called before each portion of changes: it checks the epoch where they belong to a term.
    ``only_look`` changes nothing: open znodes are ``left``.
    """
    walk = _Walk(zk, may_write, only_look=only_look, looked_at_max=looked_at_max)
    level = [root]
    levels = 0
    while level and (depth is None or levels <= depth) and not walk.is_over:
        level = [path async for path in walk.level([path for path in level if path not in without])]
        levels += 1
    return walk.found


async def close_again(zk: ZooKeeper, before: Closed, *, may_write: Callable[[], Awaitable[None]] = unfenced) -> Closed:
    """Looks again at the znodes of a complaint, without those below them, and closes what is open."""
    walk = _Walk(zk, may_write, only_look=False, looked_at_max=None)
    await walk.close((*before.left[:AGAIN_MAX], *before.shared_paths))
    walk.found.add_unseen(before)
    return walk.found


async def follow(found: Closed, again: Callable[[Closed], Awaitable[Closed]], noted: Callable[[str], None]) -> None:
    """Notes the complaint of a walk, and has it looked at again now and then until none is left."""
    noted(found.complaint)
    while found.complaint:
        await asyncio.sleep(AGAIN_S)
        found = await again(found)
        noted(found.complaint)


class _Walk:
    """One walk through znodes."""

    def __init__(
        self, zk: ZooKeeper, may_write: Callable[[], Awaitable[None]], *, only_look: bool, looked_at_max: int | None
    ) -> None:
        self._zk = zk
        self._may_write = may_write
        self._only_look = only_look
        self._looked_at_max = looked_at_max
        self.found = Closed()

    @property
    def is_over(self) -> bool:
        """Checks whether enough znodes were looked at."""
        return self._looked_at_max is not None and self.found.looked_at >= self._looked_at_max

    async def level(self, paths: Sequence[str]) -> AsyncIterator[str]:
        """Closes znodes; yields their children, as far as each has to be looked at."""
        many = [path for path in paths if _has_many(path)]
        for some in portions([path for path in paths if not _has_many(path)], PORTION):
            for path in await self._close(some):
                for child in await self._children(path):
                    yield child
        for path in many:
            await self._close_with_children(path)

    async def close(self, paths: Sequence[str]) -> None:
        """Closes znodes; of their children those alone that have to be closed before them."""
        for some in portions([path for path in paths if not _has_many(path)], PORTION):
            await self._close(some)
        for path in filter(_has_many, paths):
            await self._close_with_children(path)

    async def _close_with_children(self, path: str) -> None:
        """Closes children before their parent; those that come meanwhile after it."""
        seen = await self._look([path])
        if not any(is_open(acls, self._wanted(path), self._zk.identities) for _, acls, _ in seen):
            self._note_shared(seen, ())
            return
        children = await self._children(path)
        for some in portions(children, PORTION):
            await self._close(some)
        await self._close([path])
        known = set(children)
        for some in portions([one for one in await self._children(path) if one not in known], PORTION):
            await self._close(some)

    async def _close(self, paths: Sequence[str]) -> list[str]:
        """Closes those that are open; returns those that have children."""
        if self.is_over:
            return []
        seen = await self._look(paths)
        self.found.looked_at += len(seen)
        mine = self._zk.identities
        open_ = [
            (path, stat) for path, acls, stat in seen if stat is not None and is_open(acls, self._wanted(path), mine)
        ]
        self._note_shared(seen, {path for path, _ in open_})
        if self._only_look:
            self.found.left += [path for path, _ in open_]
        elif open_:
            await self._may_write()
            await asyncio.gather(*(self._set(path, stat) for path, stat in open_))
        return [path for path, _, stat in seen if stat is not None and stat.num_children]

    def _note_shared(self, seen: Sequence[Seen], closed: Collection[str]) -> None:
        """Notes what other identities may write. An announcement is its creator's, and its content is sealed."""
        for path, acls, _ in seen:
            if path in closed or access_of(path) is Access.ANNOUNCED:
                continue
            wanted = self._wanted(path)
            if found := strangers(acls, wanted, self._zk.identities):
                self.found.add_shared(path, found, wanted, self._zk.identities)

    def _wanted(self, path: str) -> tuple[Acl, ...]:
        return given_acls(path, self._zk.own_acls, secured=self._zk.set_acl)

    async def _look(self, paths: Sequence[str]) -> list[Seen]:
        """Reads the ACLs of znodes that exist."""
        found = await asyncio.gather(*map(self._acls, paths))
        return [(path, *one) for path, one in zip(paths, found, strict=True) if one is not None]

    async def _acls(self, path: str) -> tuple[Sequence[Acl], Stat] | None:
        try:
            return await self._zk.get_acls(path)
        except ZkError as error:
            if error.code not in (Code.NO_NODE, Code.NO_AUTH):  # its owner alone may even read it
                raise
            return None

    async def _children(self, path: str) -> list[str]:
        try:
            listed = await self._zk.children(path)
        except ZkError as error:
            if error.code is not Code.NO_AUTH:
                raise
            return []
        return [] if listed is None else [f"{path}/{name}" for name in sorted(listed[0])]

    async def _set(self, path: str, stat: Stat) -> None:
        try:
            await self._zk.set_acls(path, self._wanted(path), stat.acl_version)
        except ZkError as error:
            if error.code is Code.NO_AUTH:
                self.found.left.append(path)
            elif error.code not in (Code.NO_NODE, Code.BAD_VERSION):  # it is gone, or another daemon was first
                raise
        else:
            self.found.closed += 1


def _shown(acl: Acl) -> str:
    """Returns the id of an entry without the hash of a password."""
    return acl.id.partition(":")[0] if acl.scheme == "digest" else acl.id


def _has_many(path: str) -> bool:
    entry = own_path(path)
    return entry is not None and entry.many

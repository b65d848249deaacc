"""Declares the levels of a store: what daemons may write while one of an older release may be started again.

A daemon reads all levels up to its newest one. It writes what the store's level allows, so a daemon of that level can
go on with the store at any time. Operators raise the level once all daemons know the next one; it never falls.

=====  =======================================================================================================
level  what it adds
=====  =======================================================================================================
1      tables, regions with their owners, servers, marks; releases of before December 2026 write no more
2      splits, merges, snapshots, published values, changes of whole tables, work on regions, balances, repairs
=====  =======================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

OLDEST: Final = 1
NEWEST: Final = 2
"""The level that this release knows, and that a new store begins with."""
TEXT: Final = re.compile("[1-9][0-9]{0,3}")
"""How a level is stored."""
UPGRADE: Final = "'regent regions upgrade' raises it once all daemons of the store know that level"


class Form(StrEnum):
    """What rows of a catalog say that no daemon of the oldest level reads."""

    HEIRS = "what regions refer to"
    PARENTS = "regions that were split or merged"
    SNAPSHOTS = "snapshots"
    PUBLISHED = "published values"
    VERSIONS = "versions of tables"


FORMS: Final[Mapping[Form, int]] = dict.fromkeys(Form, 2)
"""The level that each form needs."""
KINDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("assign", "close", "move", "assign_many", "close_many", "close_stray"), 1),
    **dict.fromkeys(("crash", "fence_log", "split_log", "drain_server", "forget_server", "mark", "unmark"), 1),
    **dict.fromkeys(("create_table", "enable_table", "disable_table", "delete_table"), 1),
    **dict.fromkeys(("create_namespace", "delete_namespace"), 1),
    **dict.fromkeys(("split", "merge", "discard_parent", "clone_table", "restore_snapshot"), 2),
    **dict.fromkeys(("snapshot_table", "delete_snapshot", "publish", "unpublish"), 2),
    **dict.fromkeys(("truncate_table", "modify_table", "stop_tables", "start_tables"), 2),
    **dict.fromkeys(("region_work", "table_work", "balance", "fix_keys", "recover_server"), 2),
    **dict.fromkeys(("assign_regions", "close_regions"), 2),
    **dict.fromkeys(("adopt", "forget_region", "remove_row", "adopt_table"), 2),
}
"""The level that each kind of procedure needs: a daemon below it cannot go on with its record.

``forget_server`` came later than level 1. Its one step leaves nothing to go on with, and an upgrade may need it.
"""


class Lacking(NamedTuple):
    """Why something is not written yet, and what would make it possible."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


def lacking(level: int, kind: str) -> Lacking | None:
    """Returns why no procedure of a kind may begin in a store of a level; None where one may.

    A kind that the table lacks needs the newest level.
    """
    needs = KINDS.get(kind, NEWEST)
    if needs <= level:
        return None
    return Lacking(f"{kind} needs level {needs} of the store, and it has {level}, which older daemons read", UPGRADE)


def unstored(floor: int, forms: Iterable[Form]) -> int:
    """Returns the level of a store that names none: the lowest one that allows the forms that it has.

    ``floor``: the level to which its opening has brought it.
    """
    return max(floor, OLDEST, *(FORMS[one] for one in forms))


def newer(level: int) -> str:
    """Returns why this daemon does not begin on a store of a level; empty where it does."""
    if level <= NEWEST:
        return ""
    return (
        f"the store has level {level}, and this daemon knows levels up to {NEWEST}: a later release raised it, and may "
        "have written what this one would pass over; upgrade this daemon"
    )

"""Decides which regions are split or merged by themselves, from their loads and the policy of their table.

A split is wanted from a size, or a number of requests a second, on; a merge up to a size. Between the two lies a factor
of two: what was split is not merged, and what was merged is not split, unless its load has changed since. A region
whose split or merge is wanted and that cannot begin now has one bar, the first of :class:`Bar` that holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

HYSTERESIS: Final = 2
"""What is merged has at most this part of the size, and of the requests, from which on a region is split."""


class Policy(NamedTuple):
    """When regions of a table are split and merged; 0: never for that reason. ``regions_max``: see settings."""

    split_size_bytes: int = 0
    split_requests_per_s: int = 0
    merge_size_bytes: int = 0
    regions_max: int = 1

    @property
    def splits(self) -> bool:
        """Checks whether any region may be split."""
        return bool(self.split_size_bytes or self.split_requests_per_s)

    @property
    def merged_bytes_max(self) -> int:
        """Returns the most bytes of two neighbours that are merged; 0: none are."""
        if not self.split_size_bytes:
            return self.merge_size_bytes
        return min(self.merge_size_bytes, self.split_size_bytes // HYSTERESIS)

    def __bool__(self) -> bool:
        return self.splits or bool(self.merged_bytes_max)


PREFIX: Final = "regent."
"""Begin of the names of table options that are the daemon's; all others are the service's."""
OPTIONS: Final[Mapping[str, int]] = {
    "split_size_bytes": 1 << 50,
    "split_requests_per_s": 1_000_000_000,
    "merge_size_bytes": 1 << 50,
}
"""Fields of a policy that a table sets by an option ``regent.FIELD``, and their highest values."""


def option_problem(options: Mapping[str, str]) -> str | None:
    """Returns why a table cannot have its options; None where it can."""
    for name, value in options.items():
        if (field := name.removeprefix(PREFIX)) == name:
            continue
        if field not in OPTIONS:
            names = ", ".join(PREFIX + one for one in OPTIONS)
            return f"option {name[:80]!r} is none of regent's: give one of {names}, or a name that begins otherwise"
        if _number(value, OPTIONS[field]) is None:
            return f"option {name}: {value[:80]!r}, expected a whole number from 0 to {OPTIONS[field]}"
    return None


def _number(text: str, most: int) -> int | None:
    is_one = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    return int(text) if is_one and int(text) <= most else None


def policy_of(options: Mapping[str, str], default: Policy) -> Policy:
    """Returns the policy of a table. An option without a meaning, stored by another tool, has nothing done: 0."""
    given = {field: options[PREFIX + field] for field in OPTIONS if PREFIX + field in options}
    return default._replace(**{field: _number(text, OPTIONS[field]) or 0 for field, text in given.items()})


class Cause(StrEnum):
    """Why a region is split, or two are merged, by themselves."""

    SIZE = "size"
    LOAD = "load"
    SMALL = "small"


class Bar(StrEnum):
    """What keeps a split or a merge that is wanted from beginning now."""

    DOMAIN = "domain"
    """A crash is under way, servers are missing, or the like."""
    TABLE = "table"
    """It is being changed, or has gaps, or servers lack a feature."""
    NOT_OPEN = "not_open"
    MOVES = "moves"
    RESTS = "rests"
    INHERITS = "inherits"
    """Its data begins in that of others still."""
    PINNED = "pinned"
    NO_KEY = "no_key"
    """Its server does not name split keys."""
    REGIONS = "regions"
    """The table has as many regions as splits may make."""
    BUDGET = "budget"
    """As many splits and merges as there may be are under way, or began in the last minute."""


class Seen(NamedTuple):
    """A region as it is judged. Figures are None where its server has not reported them since the open.

    ``moves``: a procedure has it; ``inherits``: it has sources; ``names_keys``: its server does :data:`SPLIT_KEY` work.
    """

    size_bytes: int | None = None
    requests_per_s: float | None = None
    is_open: bool = True
    moves: bool = False
    rests: bool = False
    inherits: bool = False
    pinned: bool = False
    names_keys: bool = True


def split_cause(seen: Seen, policy: Policy) -> Cause | None:
    """Returns why a region is to be split; None where it is not."""
    if policy.split_size_bytes and (seen.size_bytes or 0) >= policy.split_size_bytes:
        return Cause.SIZE
    if policy.split_requests_per_s and (seen.requests_per_s or 0) >= policy.split_requests_per_s:
        return Cause.LOAD
    return None


def is_mergeable(one: Seen, other: Seen, policy: Policy) -> bool:
    """Checks whether two neighbours are to be merged. Where requests split, their number has to be known, too."""
    if not policy.merged_bytes_max or one.size_bytes is None or other.size_bytes is None:
        return False
    if one.size_bytes + other.size_bytes > policy.merged_bytes_max:
        return False
    if not policy.split_requests_per_s:
        return True
    if one.requests_per_s is None or other.requests_per_s is None:
        return False
    return HYSTERESIS * (one.requests_per_s + other.requests_per_s) <= policy.split_requests_per_s


def bar_of(seen: Seen) -> Bar | None:
    """Returns what is in the way at a region itself, of a split and of a merge."""
    bars = (
        (not seen.is_open, Bar.NOT_OPEN),
        (seen.moves, Bar.MOVES),
        (seen.rests, Bar.RESTS),
        (seen.inherits, Bar.INHERITS),
        (seen.pinned, Bar.PINNED),
    )
    return next((bar for holds, bar in bars if holds), None)


def split_bar(seen: Seen, regions: int, policy: Policy) -> Bar | None:
    """Returns what is in the way of a split; None where it may begin. ``regions``: of the table."""
    if (bar := bar_of(seen)) is not None:
        return bar
    if not seen.names_keys:
        return Bar.NO_KEY
    return Bar.REGIONS if regions >= policy.regions_max else None

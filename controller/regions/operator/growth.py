"""Says in sentences when regions are split and merged by themselves, and why one is not now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from controller.process.wording import in_bytes
from controller.regions.environment import RegionsEnv
from controller.regions.growing import Growth
from controller.regions.growth_judge import figures
from state_machines.regions.entities import Region, Table
from state_machines.regions.growth import Bar, Policy, Seen, split_bar, split_cause

OFF: Final = "no region of the table is split or merged by itself"
NOW: Final[Mapping[Bar, str]] = {
    Bar.NOT_OPEN: "it is not open",
    Bar.MOVES: "a procedure has it",
    Bar.INHERITS: "its data begins in that of others still",
    Bar.PINNED: "it is pinned to a server",
    Bar.NO_KEY: "its server names no split keys: 'regent regions split ID --key KEY' splits it",
    Bar.REGIONS: "the table has as many regions as regions.split_regions_max allows",
}
"""Why a region is not split now; the causes of the others have values."""


def policy_text(policy: Policy) -> str:
    """Says what the policy of a table is."""
    if not policy:
        return OFF
    told = list[str]()
    if policy.split_size_bytes:
        told.append(f"from {in_bytes(policy.split_size_bytes)} on")
    if policy.split_requests_per_s:
        told.append(f"from {policy.split_requests_per_s} requests a second on")
    splits = f"a region is split {' or '.join(told)}" if told else "no region is split"
    merges = f"neighbours are merged up to {in_bytes(policy.merged_bytes_max)} together"
    return f"{splits}; {merges if policy.merged_bytes_max else 'none are merged'}"


def of_table(table: Table, growth: Growth, env: RegionsEnv) -> str:
    """Says what the policy of a table is, and why nothing begins now."""
    judge = growth.judge
    if not (policy := judge.policy(table)):
        return OFF
    why = judge.of_domain() or judge.of_table(table, judge.changing())
    if not why and not len(env.loads):
        why = "no server has reported loads of regions"
    return f"{policy_text(policy)}{f'; nothing begins now: {why}' if why else ''}"


def of_region(region: Region, growth: Growth, env: RegionsEnv) -> str:
    """Says whether a region is to be split, and why that does not begin now; empty where its table has no policy."""
    judge, load = growth.judge, env.loads.of(region)
    if not (policy := judge.policy(region.table)):
        return ""
    size, requests = figures(load)
    if region.server is None:
        return policy_text(policy)
    if size is None:
        return f"its server has reported no size since the open; {policy_text(policy)}"
    has = f"it has {in_bytes(size)}" + (f" and {requests:.0f} requests a second" if requests is not None else "")
    cause = split_cause(Seen(size, requests), policy)
    if cause is None:
        return "; ".join([has, policy_text(policy), *_rest(region, growth)])
    return f"{has}, and is to be split ({cause.value}); {_why_not(region, growth, env, policy)}"


def _why_not(region: Region, growth: Growth, env: RegionsEnv, policy: Policy) -> str:
    judge = growth.judge
    if why := judge.of_domain() or judge.of_table(region.table, judge.changing()):
        return f"that does not begin now: {why}"
    bar = split_bar(judge.seen(region, env.loads.of(region)), len(region.table.regions), policy)
    if bar is None:
        return "that begins with one of the next looks"
    why = "; ".join(_rest(region, growth)) if bar is Bar.RESTS else NOW[bar].replace("ID", str(region.id))
    return f"that does not begin now: {why}"


def _rest(region: Region, growth: Growth) -> Iterator[str]:
    """Yields for how long a region rests, and after which failure."""
    if left_ms := growth.judge.rests_ms(region):
        failure = growth.judge.failure(region)
        after = f" after one that failed ({failure})" if failure else ""
        yield f"it rests{after} for {left_ms / 1000:.0f} s more (regions.split_rest_ms)"

"""Finds what a request is about in the model of the active term; refuses with a remedy what is not there."""

from __future__ import annotations

from collections.abc import Callable

from controller.http.errors import NotActive, NotFound
from controller.regions.damaged import REMEDY
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.term import RegionsTerm
from state_machines.regions.model import Region, Regions, Server, Table

ActiveTerm = Callable[[], RegionsTerm]
"""Returns the term of this daemon; raises ``NotActive``."""


def active_term(domain: RegionsDomain) -> RegionsTerm:
    """Returns the present term; raises ``NotActive`` on a daemon that has none."""
    if domain.term is None:
        remedy = "send the request to the active daemon of the store, where that is named, or try again in some seconds"
        if domain.mode is RegionsMode.FAILING:
            remedy = "remove the cause: the daemon tries again by itself, and its log has more"
        raise NotActive(f"the regions' domain of this daemon is {domain.mode.value}: {domain.why}", remedy)
    return domain.term


def acting_term(domain: RegionsDomain) -> RegionsTerm:
    """Returns the present term for a request; raises ``NotActive`` also where it would wait for the store."""
    term = active_term(domain)
    if why := term.suspended():
        raise NotActive(f"the regions' domain of this daemon is suspended: {why}", "try again once it is active")
    return term


def region_of(model: Regions, region: int) -> Region:
    """Returns a region by its id."""
    found = model.regions.get(region)
    if found is None and (why := model.damages.of_region(region)):
        raise NotFound(f"region {region} is left out: {why}", REMEDY)
    if found is None:
        raise NotFound(f"region {region} does not exist", "see 'regent regions list'")
    return found


def table_of(model: Regions, table: str) -> Table:
    """Returns a table by its name."""
    found = model.tables.get(table)
    if found is None and (why := model.damages.of_table(table)):
        raise NotFound(f"table {table!r} is left out: {why}", REMEDY)
    if found is None:
        raise NotFound(f"table {table!r} does not exist", "see 'regent tables list'")
    return found


def name_of(named: str) -> str:
    """Returns the name of ``name`` or ``name,incarnation``."""
    return named.partition(",")[0]


def server_of(model: Regions, named: str) -> Server:
    """Returns a process by ``name`` (the latest one) or ``name,incarnation``."""
    name, _, incarnation = named.partition(",")
    found = [
        one
        for one in model.servers.values()
        if one.name == name and (not incarnation or str(one.incarnation) == incarnation)
    ]
    if not found and incarnation.isdecimal() and model.is_buried((name, int(incarnation))):
        raise NotFound(f"server {named} was fenced and is no member any more", "nothing is left to do about it")
    if not found:
        raise NotFound(f"server {named!r} is not known", "see 'regent servers list'")
    return max(found, key=lambda one: one.incarnation)

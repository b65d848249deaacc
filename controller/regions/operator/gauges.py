"""Reads the values of the metrics from the present term."""

from __future__ import annotations

from controller.regions.domain import RegionsDomain
from controller.regions.metrics import WAITING, RegionGauges
from controller.regions.operator.counts import by_state, halted, servers_of, stranded, waiting


def gauges_of(domain: RegionsDomain) -> RegionGauges:
    """Returns the present values."""
    term, connections = domain.term, domain.listener.connections
    if term is None:
        return RegionGauges(connections=connections)
    env, model = term.env, term.env.model
    transit = term.ages.present()
    return RegionGauges(
        active=not (suspended := bool(term.suspended())),
        suspended=suspended,
        epoch=term.manager.epoch,
        places=env.places,
        connections=connections,
        tables=len(model.tables),
        regions={state.name.lower(): count for state, count in by_state(model).items()} | {WAITING: waiting(model)},
        in_transition=transit.regions,
        overdue=transit.overdue,
        stranded=stranded(model).total(),
        damaged_rows=sum(model.damages.count.values()),
        gaps=len(model.damages.gaps),
        tables_halted=len(halted(model, term.engine.records.values())),
        oldest_transition_s=transit.oldest_ms / 1000,
        unplaced=len(env.unplaced),
        servers=servers_of(model),
        procedures=sum(1 for _ in term.engine.live()),
        procedures_unusable=len(term.engine.unusable),
        procedures_parked=len(term.engine.parked),
    )

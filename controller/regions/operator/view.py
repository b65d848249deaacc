"""Joins what operators see and change of the regions' domain, and what its metrics show."""

from __future__ import annotations

from fastapi import FastAPI

from configs.settings import Settings
from controller.http.models import Health
from controller.regions.domain import RegionsDomain, shown
from controller.regions.metrics import WAITING, RegionGauges, RegionsCollector
from controller.regions.operator.balancer import BalancerView, add_balancer_routes
from controller.regions.operator.counts import by_state, halted, servers_of, stranded, waiting
from controller.regions.operator.explain import ExplanationView, add_explanation_route
from controller.regions.operator.marks import MarkView, add_mark_routes
from controller.regions.operator.namespaces import NamespaceView, add_namespace_routes
from controller.regions.operator.procedures import ProcedureView, add_procedure_routes
from controller.regions.operator.published import PublishedView, add_published_routes
from controller.regions.operator.region_changes import RegionChanges, add_region_change_route
from controller.regions.operator.region_lists import RegionLists, add_region_list_routes
from controller.regions.operator.regions import RegionView, add_region_routes
from controller.regions.operator.repairs import Repairs, add_repair_routes
from controller.regions.operator.report import ReportView, add_report_route
from controller.regions.operator.rows import Rows, add_row_routes
from controller.regions.operator.servers import ServerView, add_server_routes
from controller.regions.operator.shapes import ShapeView, add_shape_routes
from controller.regions.operator.snapshots import SnapshotView, add_snapshot_routes
from controller.regions.operator.status import StatusView, add_status_route
from controller.regions.operator.table_changes import TableChanges, add_table_change_routes
from controller.regions.operator.tables import TableView, add_table_routes
from controller.regions.operator.upgrade import UpgradeView, add_upgrade_route
from controller.regions.operator.works import Works, add_work_routes
from controller.regions.procedures import region_work
from controller.regions.procedures.balance import SWITCH
from controller.regions.term import RegionsTerm
from state_machines.regions.marks import MarkKind


class View:
    """Joins the views of each subject, the probes and the gauges of a domain."""

    name = "regions"

    def __init__(self, domain: RegionsDomain, settings: Settings) -> None:
        self._domain = domain
        self.status = StatusView(domain, settings)
        self.regions = RegionView(domain)
        self.explanations = ExplanationView(domain)
        self.reports = ReportView(domain)
        self.shapes = ShapeView(domain)
        self.region_changes = RegionChanges(domain)
        self.region_lists = RegionLists(domain)
        self.repairs = Repairs(domain)
        self.rows = Rows(domain)
        self.tables = TableView(domain)
        self.snapshots = SnapshotView(domain)
        self.table_changes = TableChanges(domain)
        self.namespaces = NamespaceView(domain)
        self.servers = ServerView(domain)
        self.procedures = ProcedureView(domain)
        self.marks = MarkView(domain)
        self.balancer = BalancerView(domain)
        self.upgrades = UpgradeView(domain)
        self.works = Works(domain)
        self.published = PublishedView(domain)

    def liveness(self) -> Health:
        """Reports that the loop turns."""
        return Health(ok=True, mode=self._domain.mode.value, why="the loop turns")

    def readiness(self) -> Health:
        """Reports whether the domain is active, or stands by."""
        return self.status.health()

    def status_line(self) -> str:
        """Returns mode and reason for systemd."""
        mode, why = shown(self._domain)
        return f"regions {mode}: {why}"

    def add_routes(self, app: FastAPI) -> None:
        """Adds the routes about regions."""
        add_status_route(app, self.status)
        add_region_routes(app, self.regions)
        add_explanation_route(app, self.explanations)
        add_report_route(app, self.reports)
        add_balancer_routes(app, self.balancer)
        add_upgrade_route(app, self.upgrades)
        add_work_routes(app, self.works)
        add_published_routes(app, self.published)
        add_shape_routes(app, self.shapes)
        add_repair_routes(app, self.repairs)
        add_row_routes(app, self.rows)
        add_region_change_route(app, self.region_changes)
        add_region_list_routes(app, self.region_lists)
        add_snapshot_routes(app, self.snapshots)
        add_table_change_routes(app, self.table_changes)
        add_table_routes(app, self.tables)
        add_namespace_routes(app, self.namespaces)
        add_server_routes(app, self.servers)
        add_procedure_routes(app, self.procedures)
        add_mark_routes(app, self.marks)

    def collector(self) -> RegionsCollector:
        """Returns the metrics of the domain."""
        return RegionsCollector(self._domain.counters, self.region_gauges)

    async def keep(self) -> None:
        """Keeps nothing: all that operators see is in the domain's memory."""

    def region_gauges(self) -> RegionGauges:
        """Returns the present values."""
        return gauges_of(self._domain)


def failing_work(term: RegionsTerm) -> int:
    """Returns how many pieces of work on regions failed in their latest attempt."""
    records = (term.engine.records.get(pid) for pid, _ in term.env.causes.items())
    return sum(one is not None and one.kind == region_work.NAME for one in records)


def gauges_of(domain: RegionsDomain) -> RegionGauges:
    """Returns the present values."""
    term, connections = domain.term, domain.listener.connections
    if term is None:
        return RegionGauges(connections=connections)
    env, model = term.env, term.env.model
    transit, counts = term.ages.present(), [len(one.regions) for one in model.online()]
    return RegionGauges(
        active=not (suspended := bool(term.suspended())),
        suspended=suspended,
        epoch=term.manager.epoch,
        level=model.marks.level,
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
        unsplit={bar.value: count for bar, count in term.growth.above.items()},
        parents=len(model.parents),
        oldest_parent_s=max([0, *(env.now_ms() - env.parents_ms[one] for one in model.parents)]) / 1000,
        snapshots=len(model.snapshots),
        work=sum(one.kind == region_work.NAME for one in term.engine.live()),
        work_failing=failing_work(term),
        balancer_off=model.marks.get(MarkKind.OFF, SWITCH) is not None,
        uneven=env.planner.is_uneven(),
        fewest=min(counts, default=0),
        most=max(counts, default=0),
    )

"""The daemon as its operators see it: before it has a session, as a standby, in office, suspended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from brokers.outbound.channel import PropagationLag
from brokers.security.attested import Seals
from cli.commands.observe import ALWAYS
from controller.daemon.daemon import Daemon
from controller.engine.min_isr import MinIsr
from controller.http.models import OperationRequest
from controller.http.ports import DaemonView, NotActive, NotFound, Only, PartitionQuery, Refused
from controller.journal.journal import folder_in
from controller.journal.segments import SegmentName
from controller.metrics.gauges import ShownMode as GaugeMode
from controller.operator import counts as census_module
from controller.operator import pages
from controller.operator.counts import Counted, Counts
from controller.operator.items import history_rows, partition_item
from controller.operator.pages import partition_page, topic_page
from controller.operator.sampling import MODES
from controller.operator.view import View
from controller.role.lease import Lease
from controller.role.mode import Mode
from metadata_store import paths
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce, endpoint_path
from metadata_store.port import ANY_VERSION
from state_machines.journal.events import Row
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment
from testing.memory import MemoryServer, MemoryZooKeeper
from testing.znodes import create_topic
from tests.core.controller_parts import SECRET
from tests.core.model import P, die, make_cluster, topic
from tests.core.role_kit import CLUSTER_ID, DAEMON, Kafka, kafka, settings_for
from tests.polling import eventually


@asynccontextmanager
async def governed(folder: Path) -> AsyncIterator[tuple[Kafka, Daemon, View]]:
    """Three brokers, two topics, an active daemon and its view."""
    async with kafka(folder) as cluster, cluster.daemon() as daemon:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        await cluster.topic("payments", (3, 1))
        await cluster.take_over()
        await cluster.serving(daemon)
        view = View(daemon, cluster.dial, cluster.release_of)
        await view.refresh()
        yield cluster, daemon, view


async def test_before_anything_is_known_the_probes_answer(tmp_path: Path) -> None:
    daemon = Daemon(settings_for(tmp_path), lambda: MemoryZooKeeper(MemoryServer()))
    view: DaemonView = View(daemon)
    assert view.liveness().ok
    ready = view.readiness()
    assert (ready.ok, ready.mode, ready.why) == (False, "connecting", "not connected to ZooKeeper yet")
    status = view.status()
    assert (status.mode, status.zookeeper_connected, status.holder) == ("connecting", False, None)
    assert (status.controller_epoch, view.readiness().mode) == (None, status.mode)
    for ask in (view.describe_cluster, view.list_brokers, lambda: view.list_topics(10, None)):
        with pytest.raises(NotActive, match="this daemon is connecting"):
            ask()
    with pytest.raises(NotActive, match="no ZooKeeper session"):
        await view.verify()
    assert View(daemon).gauges().mode is GaugeMode.STARTING
    assert view.operation() is None


async def test_a_standby_is_ready_and_says_who_holds_the_role(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        await view.refresh()
        assert view.readiness().ok
        status = view.status()
        assert (status.mode, status.role_flag, status.holder_kind) == ("standby", "brokers", "broker")
        assert status.holder in cluster.brokers
        assert status.cluster_id == cluster.brokers[1].cluster_id
        assert status.controller_epoch == await cluster.epoch()
        assert "regent takeover" in status.why
        assert (status.brokers, status.partitions, status.offline_partitions) == (None, None, None), "not zero: unknown"
        with pytest.raises(NotActive) as refused:
            view.describe_topic("orders")
        assert refused.value.remedy == "see 'regent status'"
        found = await view.verify()
        assert (found.partitions, found.memory) == (0, False), "a standby compares ZooKeeper and brokers"


async def test_a_standby_behind_an_active_daemon_names_it(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, active, _):
        second = cluster.settings.controller.model_copy(update={"id": DAEMON + 1})
        async with cluster.daemon(controller=second) as standby:
            view = View(standby, cluster.dial, cluster.release_of)
            await view.refresh()
            with pytest.raises(NotActive) as refused:
                view.list_brokers()
            assert refused.value.remedy == f"query the daemon on {active.me.host} (pid {active.me.pid})"
            before = f"another daemon is before us in the queue: {DAEMON} on {active.me.host} (pid {active.me.pid}, "
            await eventually(lambda: view.status().why.startswith(before))
            assert [d.id for d in view.status_reader.role_status.queue] == [DAEMON, DAEMON + 1]


async def test_in_office_everything_is_described(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        status = view.status()
        ibp = next(one for one in view.list_settings() if one.key == "controller.ibp")
        assert (ibp.value, ibp.source) == (status.ibp, "the lowest of the brokers, as known when the term began")
        assert (status.mode, status.role_flag, status.holder, status.holder_kind) == (
            "active",
            "regent",
            DAEMON,
            "daemon",
        )
        assert (status.brokers, status.topics, status.partitions) == (3, 2, 3)
        assert (status.offline_partitions, status.under_replicated_partitions, status.warnings) == (0, 0, [])
        assert (status.controller_epoch, status.lease_remaining_s > 0) == (daemon.term.claim.epoch, True)
        described = view.describe_cluster()
        assert (described.brokers, described.daemons[0].id) == ([1, 2, 3], DAEMON)
        assert [(b.id, b.leads, b.hosts, b.state) for b in view.list_brokers()] == [
            (1, 1, 3, "live"), (2, 1, 2, "live"), (3, 1, 3, "live"),
        ]  # fmt: skip
        assert view.describe_broker(2).listeners[0].security_protocol == "PLAINTEXT"
        assert [t.name for t in view.list_topics(10, None).items] == ["orders", "payments"]
        assert view.describe_topic("orders").id == "AAAAAAAAAAAAAAAAAAAABg"
        assert (await view.verify()).memory
        one = view.describe_partition("orders", 1)
        assert (one.leader, one.isr, one.under_replicated, one.preferred) == (2, [2, 3, 1], False, True)


async def test_a_journal_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        daemon.counters.journal_failing = "No space left on device"
        assert [text for text in view.status().warnings if "journal" in text and "No space left" in text]


async def test_who_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, _, view):
        with pytest.raises(NotFound, match="broker 9"):
            view.describe_broker(9)
        with pytest.raises(NotFound, match="topic nope"):
            view.describe_topic("nope")
        with pytest.raises(NotFound, match="topic orders has no partition 7"):
            view.describe_partition("orders", 7)
        with pytest.raises(NotFound, match="topic nope"):
            view.list_partitions(PartitionQuery("nope", frozenset(), 10, None))


async def test_an_explanation_names_the_rule_and_who_has_not_heard(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        dead = cluster.brokers[1]
        dead.elects = False
        await dead.zk.close()
        await eventually(lambda: view.describe_partition("orders", 0).leader == 2)
        found = await view.explain("orders", 0)
        assert "in this term; last change: leader lost: first live replica of the ISR leads" in found.leader_because
        assert "1 is not: its broker is not registered" in found.isr_because
        assert "acks=all" not in found.isr_because, "two of three replicas are in sync, one is required"
        await eventually(lambda: not daemon.term or not daemon.term.controller.channels.unacknowledged_by(0))
        assert (await view.explain("orders", 0)).waiting_for == []
        cluster.brokers[3].hold()
        cluster.brokers[2].elects = False
        await cluster.brokers[2].zk.close()
        await eventually(lambda: view.describe_partition("orders", 0).leader == 3)
        assert (await view.explain("orders", 0)).waiting_for == [3]
        cluster.brokers[3].let_go.set()


async def test_an_explanation_tells_of_former_terms(tmp_path: Path) -> None:
    folder = folder_in(settings_for(tmp_path).state.directory)
    folder.mkdir(parents=True)
    row = Row(1, "c", DAEMON, 1, 1, 0, 0, "LEADER", "orders", 0, leader0=3, leader1=1, why="brokers [3] are gone")
    (folder / str(SegmentName(1, 1, 0))).write_bytes(msgspec.json.encode(row) + b"\n")
    async with governed(tmp_path) as (_, _, view):
        [before] = (await view.explain("orders", 0)).history
        assert (before.controller_epoch, before.told) == (1, "leader 3 -> 1: brokers [3] are gone")
        assert (await view.explain("orders", 1)).history == []


def test_an_explanation_says_of_which_broker_a_replica_is() -> None:
    row = Row(1, "c", DAEMON, 1, 1, 0, 0, "REPLICA", "orders", 0, broker=2, why="a replica's broker died")
    [told] = history_rows([row])
    assert told.told == "replica on broker 2: a replica's broker died"


async def test_an_explanation_does_not_need_a_journal(tmp_path: Path) -> None:
    state = settings_for(tmp_path).state.directory
    state.mkdir(parents=True, exist_ok=True)
    (state / "events").write_text("not a folder")
    async with governed(tmp_path) as (_, _, view):
        assert (await view.explain("orders", 0)).history == []


async def test_at_min_isr_is_known_once_a_broker_was_asked(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        await create_topic(cluster.operator, "strict", {0: (1, 2, 3)}, bytes(16), {"min.insync.replicas": "3"})
        await cluster.topic("orders", (1, 2, 3))
        await cluster.take_over()
        await cluster.serving(daemon)
        view = View(daemon, cluster.dial, cluster.release_of)
        query = PartitionQuery(None, frozenset({Only.AT_MIN_ISR}), 10, None)
        with pytest.raises(Refused, match=r"min\.insync\.replicas is not known yet"):
            view.list_partitions(query)
        assert view.describe_partition("orders", 0).at_min_isr is None
        await view.refresh()
        assert [p.topic for p in view.list_partitions(query).items] == ["strict"]
        assert view.describe_partition("orders", 0).at_min_isr is False


async def test_partitions_below_min_isr_are_counted_listed_and_explained(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        await create_topic(cluster.operator, "strict", {0: (1, 2)}, bytes(16), {"min.insync.replicas": "3"})
        await cluster.topic("orders", (1, 2, 3))
        await cluster.take_over()
        await cluster.serving(daemon)
        view = View(daemon, cluster.dial, cluster.release_of)
        assert view.status().under_min_isr_partitions is None, "no broker has sent its default yet"
        assert view.describe_topic("strict").under_min_isr is None
        await view.refresh()
        below = PartitionQuery(None, frozenset({Only.UNDER_MIN_ISR}), 10, None)
        assert view.list_partitions(below).items == [], "min ISR 3 of two replicas means both"
        dead = cluster.brokers[2]
        dead.elects = False
        await dead.zk.close()
        await eventually(lambda: view.status().under_min_isr_partitions == 1)

        async def shown() -> bool:
            await view.refresh()
            return view.gauges().under_min_isr_partitions == 1

        await eventually(shown)
        assert [p.topic for p in view.list_partitions(below).items] == ["strict"]
        assert [t.under_min_isr for t in view.list_topics(10, None).items] == [0, 1]
        assert view.describe_topic("strict").under_min_isr == 1
        assert daemon.term is not None
        assert daemon.term.controller.min_isr == view.status_reader.min_isr, "log lines go by the same"
        found = await view.explain("strict", 0)
        assert "acks=all producers wait: 1 of 2 required replicas in sync" in found.isr_because
        assert (found.partition.under_min_isr, found.partition.min_isr) == (True, 3)


async def test_a_dead_broker_that_hosts_replicas_is_listed_and_described(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        dead = cluster.brokers[2]
        dead.elects = False
        await dead.zk.close()
        await eventually(lambda: [b.state for b in view.list_brokers()] == ["live", "dead", "live"])
        found = view.describe_broker(2)
        assert (found.state, found.epoch, found.hosts, found.leads) == ("dead", None, 2, 0)
        hosted = PartitionQuery(None, frozenset(), 10, None, broker=2)
        assert [(p.topic, p.partition) for p in view.list_partitions(hosted).items] == [("orders", 0), ("orders", 1)]


async def test_a_registered_broker_that_accepts_no_connection_is_unreachable(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        lags = {
            1: PropagationLag(1, 7, True, 0.0, 0, "answered UPDATE_METADATA with STALE_BROKER_EPOCH"),
            2: PropagationLag(2, 8, False, 0.0, 0, "127.0.0.1:9092: Connection refused"),
            3: PropagationLag(3, 9, False, 0.0, 0, None),
        }
        assert not [warning for warning in view.status().warnings if "unreachable" in warning]
        with mock.patch.object(daemon.term.channels, "lag", return_value=lags):
            assert [broker.state for broker in view.list_brokers()] == ["live", "unreachable", "live"]
            assert view.describe_broker(2).last_error == "127.0.0.1:9092: Connection refused"
            assert (
                "registered, but unreachable: 2 (broker 2: 127.0.0.1:9092: Connection refused); a dead one leaves when "
                "its ZooKeeper session ends"
            ) in view.status().warnings


async def test_heartbeats_without_an_answer_make_a_daemon_suspended_in_every_mode(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, active, view):
        second = cluster.settings.controller.model_copy(update={"id": DAEMON + 1})
        async with cluster.daemon(controller=second) as standby:
            waiting = View(standby, cluster.dial, cluster.release_of)
            await eventually(lambda: waiting.readiness().ok)
            for daemon, seen in ((active, view), (standby, waiting)):
                assert daemon.lease is not None
                with mock.patch.object(daemon.lease, "silent_s", return_value=26.0):
                    ready, status = seen.readiness(), seen.status()
                    assert (ready.ok, status.mode, seen.gauges().mode) == (False, "suspended", GaugeMode.SUSPENDED)
                    assert (ready.mode, seen.liveness().mode) == ("suspended", "suspended")
                    assert "has answered no heartbeat for 26 s, although the connection is up" in status.why


def test_silence_is_counted_from_the_sending_of_the_last_answered_heartbeat() -> None:
    now = [100.0]
    lease = Lease(18.0, clock=lambda: now[0])
    now[0] = 103.0
    assert lease.silent_s() == 3.0
    lease.answered(102.0)
    now[0] = 110.0
    assert lease.silent_s() == 8.0


async def test_a_suspended_connection_is_not_ready(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        assert daemon.zk is not None
        cluster.server.suspend(daemon.zk.session_id)
        await eventually(lambda: not view.readiness().ok)
        assert view.readiness().why.startswith("the connection to ZooKeeper server memory:2181 is lost: no heartbeat")
        assert (view.status().mode, view.gauges().mode) == ("suspended", GaugeMode.SUSPENDED)
        assert view.stale() == view.readiness().why
        await view.refresh()
        assert view.status().holder == DAEMON, "what was seen before stays"
        cluster.server.resume(daemon.zk.session_id)
        await eventually(lambda: view.readiness().ok)
        assert view.stale() is None


async def test_a_view_that_fails_is_said_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with governed(tmp_path) as (_, _, view):

        async def broken(_role: object) -> None:
            raise ValueError("a znode that nobody thought of")

        monkeypatch.setattr("controller.operator.role_status.look", broken)
        for _ in range(3):
            await view.refresh()
        assert view.status().role_flag == "regent", "as it was seen before"
        assert [r.name for r in caplog.records if r.levelname == "ERROR"] == ["regent.view"]


async def test_gauges_are_those_of_the_model(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        await cluster.operator.create(paths.topic("broken"), b"{")
        await eventually(lambda: view.gauges().malformed_znodes == 1)
        found = view.gauges()
        assert (found.mode, found.topics, found.partitions, found.active_brokers) == (GaugeMode.ACTIVE, 2, 3, 3)
        assert (found.offline_partitions, found.preferred_replica_imbalance) == (0, 0)
        assert sorted(found.brokers) == [1, 2, 3]
        assert view.status().warnings[0].startswith("/brokers/topics/broken cannot be used")


async def test_where_clients_find_the_controller_is_shown_for_as_long_as_it_is_so(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        assert (view.status().admin_endpoint, view.gauges().endpoint_shown) == (None, False)
        endpoint, session = AdminEndpoint("CLIENT", "regent1", 9096), cluster.operator.session_id
        sealed = Seals(SECRET, CLUSTER_ID).announced(daemon.me.id, session, endpoint)
        assert await announce(cluster.operator, daemon.me.id, sealed) is None
        await eventually(lambda: view.status().admin_endpoint == "regent1:9096 on listener CLIENT")
        assert view.gauges().endpoint_shown
        await cluster.operator.delete(endpoint_path(daemon.me.id), ANY_VERSION)
        await eventually(
            lambda: view.status().admin_endpoint is None, within_s=30.0
        )  # one that restarts stays listed 10 s
        assert not view.gauges().endpoint_shown


async def test_a_shadow_shows_what_it_follows(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        async with cluster.daemon(shadow=True) as daemon:
            view = View(daemon, cluster.dial, cluster.release_of)
            await eventually(lambda: view.status().partitions == 2)
            await view.refresh()
            status = view.status()
            assert (status.mode, status.holder_kind, status.brokers) == ("shadow", "broker", 3)
            assert view.readiness().ok
            assert view.describe_partition("orders", 1).leader == 2
            assert "it is the preferred replica" in (await view.explain("orders", 1)).leader_because
            assert [b.id for b in view.list_brokers()] == [1, 2, 3]
            daemon.counters.shadow_compared, daemon.counters.shadow_differences = 200, 3
            assert view.status().warnings == ["3 of 200 compared decisions differ from Kafka's: see the log"]
            with pytest.raises(Refused, match="shadow"):
                await view.handback(OperationRequest())


# -- operations


async def test_a_take_over_and_a_hand_back_are_followed(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        planned = await view.takeover(OperationRequest(dry_run=True))
        assert (planned.state, planned.steps[0].startswith("save a roll-back file")) == ("planned", True)
        assert view.operation() is None
        begun = await view.takeover(OperationRequest(reason="now"))
        assert (begun.state, begun.kind, begun.reason) == ("running", "takeover", "now")
        with pytest.raises(Refused, match="a takeover is running"):
            await view.handback(OperationRequest())
        await eventually(lambda: ended(view))
        assert (state(view), message(view)) == ("done", f"daemon {DAEMON} holds the role, every broker knows")
        assert (await view.handback(OperationRequest(dry_run=True))).state == "planned"
        await view.handback(OperationRequest(reason="later"))
        await eventually(lambda: ended(view))
        assert state(view) == "done"
        assert "holds the role, every broker knows" in message(view)
        found = view.operation()
        assert found is not None
        assert found.steps[1].startswith("drained")
        assert found.message not in found.steps, "the end is said once"


async def test_of_two_that_are_asked_at_once_one_is_begun(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, _, view):
        both = [view.handback(OperationRequest(reason=reason)) for reason in ("one", "two")]
        found = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(type(each).__name__ for each in found) == ["Operation", "Refused"]
        await eventually(lambda: ended(view))
        assert state(view) == "done"


async def test_refused_and_failed_operations_say_why(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        cluster.brokers[3].configs["inter.broker.listener.name"] = "REPLICATION"
        assert (await view.takeover(OperationRequest(dry_run=True))).state == "refused"
        await view.takeover(OperationRequest())
        await eventually(lambda: ended(view))
        assert (state(view), "listener names" in message(view)) == ("refused", True)
        for each in cluster.brokers.values():
            each.elects = False
            await each.zk.close()
        await view.handback(OperationRequest())
        await eventually(lambda: ended(view))
        assert (state(view), message(view)) == ("refused", "no broker is live that could take the role")


def ended(view: View) -> bool:
    return state(view) != "running"


def state(view: View) -> str:
    found = view.operation()
    assert found is not None
    return found.state


def message(view: View) -> str:
    found = view.operation()
    assert found is not None
    return found.message


# -- pages and counts, on models


def several(topics: int, partitions: int) -> Cluster:
    """Topics t00, t01, ... on three brokers; the second partition of each has lost broker 3."""
    cluster = make_cluster()
    for number in range(topics):
        rows = cluster.observe_topic(topic(f"t{number:02}", [(1, 2, 3)] * partitions))
        found = [P((1, 2, 3), leader=1, isr=(1, 2) if p == 1 else ()).leadership() for p in range(partitions)]
        cluster.load_leadership(rows, found)
    return cluster


def walk(cluster: Cluster, query: PartitionQuery, min_isr: MinIsr | None = None) -> tuple[list[str], int]:
    """All pages: the partitions in order, and the number of pages."""
    known = min_isr or MinIsr(None, {})
    seen: list[str] = []
    for number in range(1, 1000):
        page = partition_page(cluster, query, known)
        assert len(page.items) <= query.limit
        seen += [f"{item.topic}-{item.partition}" for item in page.items]
        if page.next is None:
            return seen, number
        query = query._replace(after=page.next)
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_of_partitions_meet_without_gap_or_overlap(limit: int) -> None:
    cluster = several(5, 3)
    every = [f"t{t:02}-{p}" for t in range(5) for p in range(3)]
    assert walk(cluster, PartitionQuery(None, frozenset(), limit, None))[0] == every
    assert walk(cluster, PartitionQuery("t03", frozenset(), limit, None))[0] == every[9:12]


def test_a_page_looks_at_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SCANNED_ROWS_MAX", 4)
    cluster = several(5, 3)
    seen, number = walk(cluster, PartitionQuery(None, frozenset({Only.UNDER_REPLICATED}), 100, None))
    assert seen == [f"t{t:02}-1" for t in range(5)]
    assert number == 4
    assert [len(topic_page(cluster, 100, after).items) for after in (None, "t01", "t03")] == [2, 2, 1]


def test_a_topic_that_vanishes_between_two_pages_is_passed_over() -> None:
    cluster = several(3, 2)
    page = partition_page(cluster, PartitionQuery(None, frozenset(), 3, None), MinIsr(None, {}))
    assert page.next == "t01:0"
    cluster.observe_topic_gone("t01")
    rest = partition_page(cluster, PartitionQuery(None, frozenset(), 9, page.next), MinIsr(None, {}))
    assert [item.topic for item in rest.items] == ["t02", "t02"]


def test_filters_name_what_they_say() -> None:
    cluster = make_cluster(P((1, 2), leader=1), P((2, 1), leader=1), P((3, 1), leader=3), P((1, 3), leader=1, isr=(1,)))
    die(cluster, 3)
    cluster.load_leadership([2], [P((3, 1), leader=3).leadership()])

    def named(*only: Only, min_isr: MinIsr | None = None) -> list[str]:
        return walk(cluster, PartitionQuery("t", frozenset(only), 10, None), min_isr)[0]

    assert named(Only.OFFLINE) == ["t-2"]
    assert named(Only.NOT_PREFERRED) == ["t-1"]
    assert named(Only.UNDER_REPLICATED) == ["t-3"]
    assert named(Only.OFFLINE, Only.UNDER_REPLICATED) == ["t-2", "t-3"]
    assert named(Only.AT_MIN_ISR, min_isr=MinIsr(1, {})) == ["t-3"]
    assert named(Only.AT_MIN_ISR, min_isr=MinIsr(1, {"t": 2})) == ["t-0", "t-1", "t-2"], "t-3 is below it"
    assert named(Only.AT_MIN_ISR, min_isr=MinIsr(3, {})) == ["t-0", "t-1", "t-2"], "never more than the replicas"


def test_a_reassignment_makes_nothing_under_replicated_as_in_kafka() -> None:
    """Kafka's ``OngoingReassignmentState.replicationFactor`` leaves out the replicas that are being added."""
    cluster = make_cluster(P((1, 2), leader=1), P((1, 2), leader=1, isr=(1,)), P((1, 2), leader=1))
    for i, added in enumerate([(3, 4), (3, 4), ()]):
        cluster.rows[i] = replace(
            cluster.rows[i], assignment=Assignment((*added, 1, 2), added, (1, 2) if added else ())
        )

    def named(only: Only) -> list[str]:
        return walk(cluster, PartitionQuery("t", frozenset({only}), 10, None), MinIsr(2, {}))[0]

    assert named(Only.UNDER_REPLICATED) == ["t-1"], "its origin lacks broker 2"
    assert named(Only.AT_MIN_ISR) == ["t-0", "t-2"]
    assert named(Only.UNDER_MIN_ISR) == ["t-1"]
    assert named(Only.NOT_PREFERRED) == [], "a replica that is being added is not preferred yet"
    found = census_module.counted(cluster.rows, lambda _: 2)
    assert (found.under_replicated, found.under_min_isr, found.not_preferred) == (1, 1, 0)
    [moving, lacking] = [partition_item(cluster, i, 2) for i in (0, 1)]
    assert [(item.under_replicated, item.preferred) for item in (moving, lacking)] == [(False, True), (True, True)]
    assert (moving.at_min_isr, lacking.at_min_isr, lacking.under_min_isr) == (True, False, True)
    described = topic_page(cluster, 1, None).items[0]
    assert (described.replication_factor, described.under_replicated, described.not_preferred) == (2, 1, 0)


async def test_reassignments_under_way_are_a_row_of_the_status(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        assert view.status().reassignments == 0
        daemon.term.cluster.reassigning[0] = Assignment((1, 2, 3), (3,), (1,))
        assert view.status().reassignments == 1
        assert "reassignments" in ALWAYS, "the row is there before anything is counted, too"


async def test_a_large_model_is_counted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = several(4, 5)
    exact = Counts()
    exact.count(cluster.rows)
    assert (exact.under_replicated, exact.not_preferred, exact.leads[1], exact.hosts[3]) == (4, 0, 20, 20)
    monkeypatch.setattr(census_module, "TURN_ROWS", 7)
    counted = Counted()
    assert counted.of(cluster) is None, "not counted yet, and too large to be counted at once"
    await counted.refresh(cluster)
    found = counted.of(cluster)
    assert found is not None
    assert (found.under_replicated, found.leads, found.hosts) == (exact.under_replicated, exact.leads, exact.hosts)
    assert counted.of(several(4, 5)) is None, "another term's model"


def test_rows_of_vanished_topics_do_not_count() -> None:
    cluster = several(2, 3)
    cluster.observe_topic_gone("t00")
    found = Counted().of(cluster)
    assert found is not None
    assert (found.leads[1], found.under_replicated) == (3, 1)


async def test_a_scrape_counts_no_partition_once_the_model_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the last count, which is made beside it, whatever the size."""
    cluster = make_cluster(P((1, 2), 1), P((2, 1), 2))
    counted = Counted()
    exact, _ = counted.seen(cluster)
    assert exact.leads == {1: 1, 2: 1}, "not counted yet, and small"
    await counted.refresh(cluster)
    monkeypatch.setattr(Counts, "count", None)
    die(cluster, 2)
    assert counted.seen(cluster)[0].leads == exact.leads
    monkeypatch.undo()
    assert counted.seen(make_cluster(P((1, 2), 1)))[0].leads == {1: 1}, "another term's model"


async def test_the_heartbeats_age_grows_while_zookeeper_is_away_and_over_sessions(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        await eventually(lambda: daemon.counters.heartbeats.count > 0)
        assert view.gauges().heartbeat_age_s < 60
        assert 0 < view.gauges().lease_remaining_part <= 1
        daemon.heartbeat_s -= 100
        assert 100 < view.gauges().heartbeat_age_s < 160
    daemon.heartbeat_s -= 1_000
    found = view.gauges()
    assert (found.heartbeat_age_s > 1_000, found.lease_remaining_part) == (True, 0.0), "there is no session any more"


async def test_a_standby_shows_that_a_broker_holds_the_role(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        await view.refresh()
        found = view.gauges()
        assert (found.mode, found.holder, found.role_flag) == (GaugeMode.STANDBY, "broker", "brokers")
        await cluster.take_over()
        await cluster.serving(daemon)
        await view.refresh()
        await eventually(lambda: view.gauges().mode is GaugeMode.ACTIVE)
        found = view.gauges()
        assert (found.holder, found.role_flag) == ("daemon", "regent")
        await eventually(lambda: daemon.counters.propagation.count > 0)


def test_every_mode_of_the_daemon_has_a_gauge() -> None:
    assert set(MODES) == set(Mode)

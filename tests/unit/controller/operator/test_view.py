"""The daemon as its operators see it: before its first session, as a standby, active, suspended, as a shadow."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from brokers.outbound.channel import PropagationLag
from brokers.security.shared_secret import Seals
from cli.commands.observe import ALWAYS
from controller.daemon.daemon import Daemon
from controller.daemon.state import Mode
from controller.http.documents import NotActive, NotFound, ViewRefused
from controller.http.models import OperationRequest
from controller.kafka.metrics.values import ShownMode as GaugeMode
from controller.operator.gauges import MODES
from controller.operator.partitions import PartitionQuery
from controller.operator.present import Announced, announced
from controller.operator.view import View
from controller.procedures.engine import Engine
from metadata_store import paths
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce, endpoint_path
from metadata_store.port import ANY_VERSION
from metadata_store.records.port import StoreFailed
from state_machines.model.types import Assignment
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually
from tests.kit.kafka.parts import SECRET
from tests.kit.kafka.role import CLUSTER_ID, DAEMON, kafka, settings_for
from tests.kit.view_kit import dies, governed


async def test_before_the_first_session_the_probes_respond(tmp_path: Path) -> None:
    daemon = Daemon(settings_for(tmp_path), lambda: MemoryZooKeeper(MemoryServer()))
    view = View(daemon)
    assert view.liveness().ok
    ready = view.readiness()
    assert (ready.ok, ready.mode, ready.why) == (False, "connecting", "not connected to ZooKeeper yet")
    status = view.whole.status()
    assert (status.mode, status.zookeeper_connected, status.holder) == ("connecting", False, None)
    assert (status.controller_epoch, view.readiness().mode) == (None, status.mode)
    for read in (view.whole.cluster, view.brokers.listed, lambda: view.partitions.list_topics(10, None)):
        with pytest.raises(NotActive, match="this daemon is connecting"):
            read()
    with pytest.raises(NotActive, match="no ZooKeeper session"):
        await view.verifications.verify()
    assert View(daemon).gauges().mode is GaugeMode.STARTING
    assert view.role.operation() is None


async def test_a_standby_is_ready_and_names_the_holder_of_the_role(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        await view.refresh()
        assert view.readiness().ok
        found = view.gauges()
        assert (found.mode, found.holder, found.role_flag) == (GaugeMode.STANDBY, "broker", "brokers")
        status = view.whole.status()
        assert (status.mode, status.role_flag, status.holder_kind) == ("standby", "brokers", "broker")
        assert status.holder in cluster.brokers
        assert status.cluster_id == cluster.brokers[1].cluster_id
        assert status.controller_epoch == await cluster.epoch()
        assert "regent takeover" in status.why
        assert (status.brokers, status.partitions, status.offline_partitions) == (None, None, None), "not zero: unknown"
        with pytest.raises(NotActive) as refused:
            view.partitions.describe_topic("orders")
        assert refused.value.remedy == "see 'regent status'"
        verified = await view.verifications.verify()
        assert (verified.partitions, verified.memory) == (0, False), "a standby compares ZooKeeper and brokers"
        await cluster.take_over()
        await cluster.serving(daemon)
        await eventually(lambda: view.gauges().mode is GaugeMode.ACTIVE)
        assert view.gauges().holder == "daemon", "its own term is known before the next read"
        await view.refresh()
        assert (view.gauges().holder, view.gauges().role_flag) == ("daemon", "regent")
        await eventually(lambda: daemon.counters.propagation.count > 0)


async def test_a_standby_behind_an_active_daemon_names_it(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, active, _):
        second = cluster.settings.controller.model_copy(update={"id": DAEMON + 1})
        async with cluster.daemon(controller=second) as standby:
            view = View(standby, cluster.dial, cluster.release_of)
            await view.refresh()
            with pytest.raises(NotActive) as refused:
                view.brokers.listed()
            assert refused.value.remedy == f"query the daemon on {active.me.host} (pid {active.me.pid})"
            before = f"another daemon is before us in the queue: {DAEMON} on {active.me.host} (pid {active.me.pid}, "
            await eventually(lambda: view.whole.status().why.startswith(before))
            assert [d.id for d in view.status_reader.role_status.queue] == [DAEMON, DAEMON + 1]


async def test_the_status_names_procedures_that_do_not_go_on_and_the_command_that_ends_them(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        term = daemon.term
        assert term is not None
        await eventually(lambda: term.procedures.engine_or_none is not None)
        engine = term.procedures.engine
        engine.park(7, KeyError(1))
        with mock.patch.object(Engine, "unusable", {9: "its record is damaged"}):
            parked, unusable = view.whole.status().warnings
        why = "'regent procedures list -o wide' says why, and 'regent procedures"
        assert parked == f"1 procedure parked, because steps ended terms (pid 7): {why} bypass PID' ends one"
        assert unusable == f"1 procedure cannot go on (pid 9): {why} remove PID' removes one"
        assert view.gauges().procedures_parked == 1
        term.procedures._fail(StoreFailed("a record is refused"))
        [warning] = view.whole.status().warnings
        assert warning.startswith("procedures stand still: a record is refused: they are loaded again by themselves")
        assert view.gauges().procedures_stand_still


async def test_an_active_daemon_describes_the_cluster(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        status = view.whole.status()
        ibp = next(one for one in view.whole.settings() if one.key == "controller.ibp")
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
        described = view.whole.cluster()
        assert (described.brokers, described.daemons[0].id) == ([1, 2, 3], DAEMON)
        assert [(b.id, b.leads, b.hosts, b.state) for b in view.brokers.listed()] == [
            (1, 1, 3, "live"), (2, 1, 2, "live"), (3, 1, 3, "live"),
        ]  # fmt: skip
        assert view.brokers.described(2).listeners[0].security_protocol == "PLAINTEXT"
        assert [t.name for t in view.partitions.list_topics(10, None).items] == ["orders", "payments"]
        assert view.partitions.describe_topic("orders").id == "AAAAAAAAAAAAAAAAAAAABg"
        assert (await view.verifications.verify()).memory
        one = view.partitions.describe_partition("orders", 1)
        assert (one.leader, one.isr, one.under_replicated, one.preferred) == (2, [2, 3, 1], False, True)


async def test_each_trouble_is_a_warning_with_its_numbers(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        assert view.whole.status().warnings == []
        counters = daemon.counters
        counters.malformed |= {f"/brokers/topics/t{number}": "it is no JSON" for number in range(5)}
        assert view.whole.status().warnings[-1] == "/brokers/topics/t4 cannot be used: it is no JSON"
        counters.malformed |= {f"/brokers/topics/t{number}": "it is no JSON" for number in range(7)}
        assert view.whole.status().warnings[5:] == [
            "2 more znodes cannot be used: regent describe cluster names them all"
        ]
        counters.malformed.clear()
        counters.journal_failing = "No space left on device"
        counters.lowered_ibp_brokers.update({3, 1})
        counters.shadow_compared, counters.shadow_differences = 200, 3
        assert view.whole.status().warnings == [
            "brokers [1, 3] have another IBP than the controller",
            "the journal cannot be written, decisions are not recorded: No space left on device",
            "3 of 200 compared decisions differ from Kafka's: see the log",
        ]
        daemon.term.cluster.reassigning[0] = Assignment((1, 2, 3), (3,), (1,))
        assert (view.whole.status().reassignments, view.gauges().reassigning_partitions) == (1, 1)
        assert (view.whole.status().drained_brokers, view.whole.status().cordoned_brokers) == (None, None)
        daemon.term.cluster.observe_drained({3, 1})
        daemon.term.cluster.cordoned = frozenset({1, 2, 3})
        assert (view.whole.status().drained_brokers, view.gauges().drained_brokers) == ([1, 3], 2)
        assert view.whole.status().cordoned_brokers == [1, 2, 3]
        assert [(b.id, b.cordoned, b.drained) for b in view.brokers.listed()] == [
            (1, True, True),
            (2, True, False),
            (3, True, True),
        ]
        assert "reassignments" in ALWAYS, "the row is there before the first count, too"


async def test_a_missing_broker_topic_or_partition_is_not_found(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, _, view):
        with pytest.raises(NotFound, match="broker 9"):
            view.brokers.described(9)
        with pytest.raises(NotFound, match="topic nope"):
            view.partitions.describe_topic("nope")
        with pytest.raises(NotFound, match="topic orders has no partition 7"):
            view.partitions.describe_partition("orders", 7)
        with pytest.raises(NotFound, match="topic nope"):
            view.partitions.list_partitions(PartitionQuery("nope", frozenset(), 10, None))


async def test_a_dead_broker_that_hosts_replicas_is_listed_and_described(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        await dies(cluster, 2)
        await eventually(lambda: [b.state for b in view.brokers.listed()] == ["live", "dead", "live"])
        await eventually(lambda: view.brokers.described(2).leads == 0)
        found = view.brokers.described(2)
        assert (found.state, found.epoch, found.hosts, found.leads) == ("dead", None, 2, 0)
        assert found.dead_since is not None
        assert (found.dead_before, found.awaited_by) == (None, [])
        hosted = PartitionQuery(None, frozenset(), 10, None, broker=2)
        assert [(p.topic, p.partition) for p in view.partitions.list_partitions(hosted).items] == [
            ("orders", 0),
            ("orders", 1),
        ]


async def test_a_registered_broker_that_accepts_no_connection_is_unreachable(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.term is not None
        lags = {
            1: PropagationLag(1, 7, True, 0.0, 0, "responded to UPDATE_METADATA with STALE_BROKER_EPOCH"),
            2: PropagationLag(2, 8, False, 0.0, 0, "127.0.0.1:9092: Connection refused"),
            3: PropagationLag(3, 9, False, 0.0, 0, None),
        }
        assert not [warning for warning in view.whole.status().warnings if "unreachable" in warning]
        with mock.patch.object(daemon.term.channels, "lag", return_value=lags):
            assert [broker.state for broker in view.brokers.listed()] == ["live", "unreachable", "live"]
            assert view.brokers.described(2).last_error == "127.0.0.1:9092: Connection refused"
            assert (
                "registered, but unreachable: 2 (broker 2: 127.0.0.1:9092: Connection refused); a dead one leaves when "
                "its ZooKeeper session ends"
            ) in view.whole.status().warnings


async def test_gauges_are_values_of_the_model(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, _, view):
        await cluster.operator.create(paths.topic("broken"), b"{")
        await eventually(lambda: view.gauges().malformed_znodes == 1)
        found = view.gauges()
        assert (found.mode, found.topics, found.partitions, found.active_brokers) == (GaugeMode.ACTIVE, 2, 3, 3)
        assert (found.offline_partitions, found.preferred_replica_imbalance) == (0, 0)
        assert sorted(found.brokers) == [1, 2, 3]
        assert view.whole.status().warnings[0].startswith("/brokers/topics/broken cannot be used")


async def test_the_admin_endpoint_is_shown_while_it_is_announced(tmp_path: Path) -> None:
    async with governed(tmp_path) as (cluster, daemon, view):
        assert (view.whole.status().admin_endpoint, view.gauges().endpoint_shown) == (None, False)
        endpoint, session = AdminEndpoint("CLIENT", "regent1", 9096), cluster.operator.session_id
        sealed = Seals(SECRET, CLUSTER_ID).announced(daemon.me.id, session, endpoint)
        assert await announce(cluster.operator, daemon.me.id, sealed) is None
        await eventually(lambda: view.whole.status().admin_endpoint == "regent1:9096 on listener CLIENT")
        assert view.gauges().endpoint_shown
        await cluster.operator.delete(endpoint_path(daemon.me.id), ANY_VERSION)
        await eventually(lambda: view.whole.status().admin_endpoint is None)  # one that restarts stays for 10 s
        assert not view.gauges().endpoint_shown


@pytest.mark.parametrize("written", ["nothing", "garbage", "unsealed", "sealed"])
async def test_an_announcement_is_ours_if_it_can_be_read_and_is_sealed(tmp_path: Path, written: str) -> None:
    async with governed(tmp_path) as (cluster, daemon, _):
        endpoint, zk = AdminEndpoint("CLIENT", "regent1", 9096), cluster.operator
        if written != "nothing":
            sealed = Seals(SECRET, CLUSTER_ID).announced(daemon.me.id, zk.session_id, endpoint)
            endpoint = sealed if written == "sealed" else endpoint
            assert await announce(zk, daemon.me.id, endpoint) is None
        if written == "garbage":
            await zk.set(endpoint_path(daemon.me.id), b"?", ANY_VERSION)
        assert daemon.role is not None
        found = await announced(daemon.role)
        assert found == (Announced() if written in ("nothing", "garbage") else Announced(endpoint, written == "sealed"))


async def test_a_shadow_shows_the_state_that_it_follows(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        async with cluster.daemon(shadow=True) as daemon:
            view = View(daemon, cluster.dial, cluster.release_of)
            await eventually(lambda: view.whole.status().partitions == 2)
            await view.refresh()
            status = view.whole.status()
            assert (status.mode, status.holder_kind, status.brokers) == ("shadow", "broker", 3)
            assert view.readiness().ok
            assert view.partitions.describe_partition("orders", 1).leader == 2
            assert "it is the preferred replica" in (await view.explanations.explain("orders", 1)).leader_because
            assert [b.id for b in view.brokers.listed()] == [1, 2, 3]
            with pytest.raises(ViewRefused, match="shadow"):
                await view.role.handback(OperationRequest(), "uid 0")


def test_every_mode_of_the_daemon_has_a_gauge() -> None:
    assert set(MODES) == set(Mode)

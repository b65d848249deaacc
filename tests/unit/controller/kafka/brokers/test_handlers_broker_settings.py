"""Settings of brokers in a term: adopted before clients are served, kept for the next term, followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from brokers.client import BrokerCallFailed
from brokers.wire.errors import Error
from brokers.wire.messages import topics as t
from controller.kafka.path.adoption import SESSION
from controller.kafka.requests.calls import Calls
from controller.role.own_znodes import BROKER_SETTINGS
from metadata_store import paths
from state_machines.admin_rules.broker_settings import DELETE, UNCLEAN
from state_machines.admin_rules.create_topics import TopicError
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.journal.events import Kind
from state_machines.model.types import Broker
from tests.kit.deadlines import eventually, in_virtual_time
from tests.kit.kafka.calls import call, create, topic
from tests.kit.kafka.world import KafkaWorld, in_world, world

GUARDED = {"delete.topic.enable": "false", "num.partitions": "4", "default.replication.factor": "3"}


class Brokers:
    """What each broker has in its file; ``silent`` ones do not answer, ``slow_s`` is how long all think."""

    def __init__(self, **settings: str) -> None:
        self.files: dict[int, dict[str, str]] = {}
        self.every = settings
        self.silent: set[int] = set()
        self.slow_s = 0.0
        self.asked = 0

    @asynccontextmanager
    async def ask(self, broker: Broker) -> AsyncIterator[Any]:
        self.asked += 1
        if broker.id in self.silent:
            raise BrokerCallFailed("it does not answer")
        yield self

    async def static_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        await asyncio.sleep(self.slow_s)
        return {**self.every, **self.files.get(broker_id, {})}

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        raise BrokerCallFailed("what topics inherit is not told here")


def asking(w: KafkaWorld, *, every: dict[str, str] | None = None, **files: dict[str, str]) -> Brokers:
    """The world's brokers are asked from now on; ``files``: of broker_1, broker_2, ..."""
    found = Brokers()
    found.every = every or {}
    found.files = {int(name.removeprefix("broker_")): said for name, said in files.items()}
    w.settings_dial = found.ask
    return found


async def settled(w: KafkaWorld) -> None:
    """Until the term knows what its brokers have."""
    await asyncio.wait_for(w.term.controller.adoption.settled.wait(), 60.0)
    await w.settle()


def held(w: KafkaWorld, key: str) -> object:
    return w.term.controller.adoption.found[key].value


async def served(w: KafkaWorld, body: Any) -> Any:
    """A call of a client, which waits until clients are served."""
    return await Calls(w.term.queue, w.term.authorizer).carried(call(body))


@in_world()
async def test_defaults_of_the_brokers_are_those_of_topics_that_clients_create(w: KafkaWorld) -> None:
    asking(w, every=GUARDED)
    await w.begin_term()
    [made] = (await served(w, create(topic("t")))).topics
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 4, 3)


@in_world()
async def test_deletion_that_brokers_forbid_is_refused_and_a_marker_is_removed(w: KafkaWorld) -> None:
    asking(w, broker_2=GUARDED)
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await settled(w)
    [refused] = (await w.delete_topics("t")).topics
    assert refused.error is Error.TOPIC_DELETION_DISABLED
    await w.mark("t")
    await w.propagated()
    assert w.node(paths.deletion("t")) is None
    assert ("t", 0) in w.leaders()


@in_world()
async def test_markers_wait_until_a_broker_has_reported_that_deletion_is_allowed(w: KafkaWorld) -> None:
    brokers = asking(w)
    brokers.silent = {1, 2, 3}
    await w.topic("t", (1, 2), leaders=True)
    await w.mark("t", "never-was")
    await w.serve()
    assert held(w, DELETE) is None
    assert w.node(paths.deletion("t")) is not None
    assert w.node(paths.deletion("never-was")) is None, "what it names does not exist"
    assert all(w.wires.deleted(b) == [] for b in (1, 2, 3))
    [refused] = (await w.delete_topics("t")).topics
    assert refused.error is Error.REQUEST_TIMED_OUT, "it may be allowed, which will be known"
    assert "controller.delete_topic_enable" in (refused.why or "")
    [answered] = (await served(w, t.DeleteTopicsRequest(1_000, ("t",)))).responses
    assert (answered.error_code, answered.error_message) == (Error.REQUEST_TIMED_OUT, refused.why)
    brokers.silent = {1}
    await eventually(lambda: bool(w.wires.deleted(1)), 60.0)
    assert held(w, DELETE) is True


@in_world()
async def test_topics_that_depend_on_values_that_no_broker_reported_are_refused(w: KafkaWorld) -> None:
    asking(w).silent = {1, 2, 3}
    await w.serve()
    wanted = create(topic("a"), topic("b", 1))
    first, second = (await served(w, wanted)).topics
    assert (first.error_code, second.error_code) == (TopicError.REQUEST_TIMED_OUT,) * 2
    assert "num.partitions" in (first.error_message or "")
    assert "controller.default_replication_factor" in (second.error_message or "")
    wanted = create(topic("c", 1, 1), topic("d", 1, 1, remote_storage_enable="true"), topic("e", 1, 1, nonsense="1"))
    third, fourth, fifth = (await served(w, wanted)).topics
    assert (third.error_code, fourth.error_code) == (TopicError.REQUEST_TIMED_OUT,) * 2
    assert "ignore_create_topic_policy" in third.error_message, "nor is it known whether brokers have a policy"
    assert "remote_log_storage_system_enable" in fourth.error_message
    assert fifth.error_code == TopicError.INVALID_CONFIG, "which will not become right"


@pytest.mark.parametrize("when", ["before", "after"])
@in_virtual_time
async def test_settings_reported_while_zookeeper_is_away_are_kept_once_it_is_back(when: str) -> None:
    async with world() as w:
        brokers = asking(w, every=GUARDED)
        brokers.silent = {1, 2, 3}
        await w.begin_term()
        w.active.script.at(BROKER_SETTINGS, lambda: w.server.suspend(w.active.zk.session_id), when=when)
        brokers.silent.clear()
        await eventually(lambda: not w.term.gate.ready.is_set(), 60.0)
        asked = brokers.asked
        w.server.resume(w.active.zk.session_id)
        await eventually(lambda: not w.term.controller.adoption.unkept, 60.0)
        assert w.node(BROKER_SETTINGS) is not None
        assert brokers.asked == asked, "they need not say it again"
        assert not w.term.gate.ended


@in_world()
async def test_a_broker_that_does_not_report_its_settings_is_logged_with_the_missing_permission(
    w: KafkaWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asking(w, every=GUARDED).silent = {3}
    await w.begin_term()
    await asyncio.sleep(60.0)
    [said] = [line for line in caplog.messages if line.startswith("broker 3 does not report its settings")]
    assert "DescribeConfigs on the cluster" in said
    assert "controller.* keys" in said


@in_world()
async def test_calls_of_clients_wait_for_the_settings_of_brokers_and_calls_of_brokers_do_not(w: KafkaWorld) -> None:
    asking(w, every=GUARDED).slow_s = 2.0
    await w.topic("u", (1, 2, 3), leaders=True)
    await w.begin_term()
    started_s = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(served(w, create(topic("t"))))
    answer = await w.alter_partition(1, w.proposal("u", 0, (1, 2)))
    assert answer.error == 0
    assert asyncio.get_running_loop().time() - started_s < 1.0
    assert not waiting.done()
    [made] = (await waiting).topics
    assert made.num_partitions == 4


@in_world()
async def test_clients_wait_a_bounded_time_for_a_silent_broker(w: KafkaWorld) -> None:
    asking(w, every=GUARDED).silent = {3}
    await w.begin_term()
    started_s = asyncio.get_running_loop().time()
    [made] = (await served(w, create(topic("t")))).topics
    assert made.num_partitions == 4
    assert asyncio.get_running_loop().time() - started_s <= 6.0


@in_world()
async def test_reported_settings_are_kept_for_a_daemon_that_takes_over_while_all_brokers_are_silent(
    w: KafkaWorld,
) -> None:
    brokers = asking(w, every=GUARDED)
    await w.begin_term()
    await settled(w)
    await eventually(lambda: w.node(BROKER_SETTINGS) is not None)
    await w.active.crash()
    brokers.silent = {1, 2, 3}
    await w.begin_term()
    started_s = asyncio.get_running_loop().time()
    [made] = (await served(w, create(topic("t")))).topics
    assert (made.num_partitions, made.replication_factor) == (4, 3)
    assert asyncio.get_running_loop().time() - started_s < 1.0, "they said it since they registered: nobody waits"
    assert held(w, DELETE) is False


@in_world()
async def test_clients_wait_for_brokers_that_restarted_since_their_settings_were_kept(w: KafkaWorld) -> None:
    brokers = asking(w, every=GUARDED)
    await w.begin_term()
    await settled(w)
    await eventually(lambda: w.node(BROKER_SETTINGS) is not None)
    await w.active.crash()
    await w.bounce(1, 2, 3)
    brokers.every, brokers.slow_s = GUARDED | {"num.partitions": "7"}, 2.0
    await w.begin_term()
    [made] = (await served(w, create(topic("t")))).topics
    assert made.num_partitions == 7


@pytest.mark.parametrize("kept", [b"{", b"", b'{"names":["a"],"values":[],"brokers":{"1":[1,4]}}', b"[]"])
@in_world()
async def test_kept_settings_that_are_malformed_are_queried_anew(w: KafkaWorld, kept: bytes) -> None:
    asking(w, every=GUARDED)
    await w.seat()
    await w.operator.create(BROKER_SETTINGS, kept)
    await w.begin_term()
    await settled(w)
    assert held(w, DELETE) is False
    await eventually(lambda: json.loads((w.node(BROKER_SETTINGS)).data)["version"] == 1)  # type: ignore[union-attr, arg-type]


@in_world()
async def test_settings_that_cannot_be_kept_hold_all_the_same(w: KafkaWorld) -> None:
    asking(w, every=GUARDED)
    await w.seat()
    await w.operator.create(BROKER_SETTINGS, b"{}")
    w.restrict(BROKER_SETTINGS)
    await w.begin_term()
    await settled(w)
    assert held(w, DELETE) is False
    assert sum(w.counters.failures.values()) == 1


@pytest.mark.parametrize("how", ["joins", "restarts"])
@in_world()
async def test_a_broker_that_registers_with_a_stricter_value_is_followed_and_so_is_its_end(
    w: KafkaWorld, how: str
) -> None:
    brokers = asking(w)
    if how == "restarts":
        await w.boot(4)
    await w.begin_term()
    await settled(w)
    assert held(w, DELETE) is True
    brokers.files[4] = GUARDED
    await (w.bounce if how == "restarts" else w.boot)(4)
    await eventually(lambda: held(w, DELETE) is False, 60.0)
    w.die(4)
    await w.propagated()
    assert held(w, DELETE) is True


@in_world()
async def test_a_deletion_that_has_begun_goes_on_when_a_broker_joins_that_forbids_it(w: KafkaWorld) -> None:
    asking(w, broker_4=GUARDED)
    await w.topic("t", (1, 2), leaders=True)
    await w.topic("u", (1, 2), leaders=True)
    await w.begin_term()
    await settled(w)
    w.die(2)
    await w.mark("t")
    await w.propagated()
    await w.boot(4)
    await eventually(lambda: held(w, DELETE) is False, 60.0)
    await w.mark("u")
    await w.propagated()
    assert w.node(paths.deletion("t")) is not None, "broker 1 has deleted its log already"
    assert w.node(paths.deletion("u")) is None
    await w.boot(2)
    await w.propagated()
    await eventually(lambda: w.znodes_of("t") == [], 60.0)
    assert ("u", 0) in w.leaders()


@in_world(num_partitions=2, delete_topic_enable=True)
async def test_a_value_of_ours_comes_before_the_brokers(w: KafkaWorld) -> None:
    asking(w, every=GUARDED)
    await w.begin_term()
    [made] = (await served(w, create(topic("t")))).topics
    assert (made.num_partitions, made.replication_factor) == (2, 3)
    assert held(w, DELETE) is True


@in_virtual_time
async def test_a_policy_of_a_broker_refuses_every_creation_unless_it_is_ignored() -> None:
    for ignored in (False, True):
        async with world(ignore_create_topic_policy=ignored) as w:
            asking(w, broker_1={"create.topic.policy.class.name": "com.example.Rules"})
            await w.begin_term()
            for validate_only in (True, False):
                wanted = create(topic("t", 1, 1), validate_only=validate_only)
                [made] = (await served(w, wanted)).topics
                assert made.error_code == (0 if ignored else TopicError.POLICY_VIOLATION)
                assert ignored or "=com.example.Rules" in made.error_message
            assert (w.node(paths.topic("t")) is not None) == ignored


@pytest.mark.parametrize("static", ["true", "false"])
@in_world()
async def test_a_topic_gets_tiered_storage_only_where_brokers_have_it(w: KafkaWorld, static: str) -> None:
    asking(w, every={"remote.log.storage.system.enable": static})
    await w.begin_term()
    [made] = (await served(w, create(topic("t", 1, 1, remote_storage_enable="true")))).topics
    assert made.error_code == (0 if static == "true" else TopicError.INVALID_CONFIG)
    compacted = create(topic("u", 1, 1, remote_storage_enable="true", cleanup_policy="delete,compact"))
    [refused] = (await served(w, compacted)).topics
    assert refused.error_code == TopicError.INVALID_CONFIG


@pytest.mark.parametrize("static", ["true", "false"])
@in_world()
async def test_unclean_elections_follow_the_brokers_file_as_soon_as_it_is_known(w: KafkaWorld, static: str) -> None:
    """At the take-over itself the strict value holds; what waits for a leader is elected once it is known."""
    asking(w, every={"unclean.leader.election.enable": static})
    await w.topic("t", (1, 2), leaders=True, isr=(1,))
    w.die(1)
    await w.begin_term()
    await settled(w)
    await w.propagated()
    assert held(w, UNCLEAN) is (static == "true")
    assert w.leaders()["t", 0][0] == (2 if static == "true" else -1)


@pytest.mark.parametrize("own", ["false", "true"])
@in_world()
async def test_a_live_broker_whose_own_dynamic_setting_forbids_unclean_elections_forbids_the_default(
    w: KafkaWorld, own: str
) -> None:
    asking(w, every={"unclean.leader.election.enable": "true"})
    await w.configure("brokers", "3", unclean_leader_election_enable=own)
    await w.topic("t", (1, 2), leaders=True, isr=(1,))
    await w.begin_term()
    await settled(w)
    w.die(1)
    await w.propagated()
    assert w.leaders()["t", 0][0] == (2 if own == "true" else -1)


@pytest.mark.parametrize("allowed", ["true", "false"])
@in_world()
async def test_leaders_go_back_by_themselves_only_where_brokers_let_them(w: KafkaWorld, allowed: str) -> None:
    asking(w, every={"auto.leader.rebalance.enable": allowed})
    await w.topic("t", (1, 2, 3), leaders=True, led_by=2)
    await w.begin_term()
    await asyncio.sleep(400.0)
    await w.propagated()
    assert w.leaders()["t", 0][0] == (1 if allowed == "true" else 2)


@in_world()
async def test_brokers_windows_are_those_of_quotas(w: KafkaWorld) -> None:
    asking(w, every={"controller.quota.window.num": "5", "controller.quota.window.size.seconds": "2"})
    await w.begin_term()
    await settled(w)
    assert w.term.controller.quotas.window_s == 10


@in_world()
async def test_brokers_that_differ_are_logged_once(w: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    asking(w, broker_2=GUARDED)
    await w.begin_term()
    await settled(w)
    w.die(3)
    await w.propagated()
    lines = [record.getMessage() for record in caplog.records]
    told = [line for line in lines if line.startswith("delete.topic.enable is")]
    assert told[0] == (
        "delete.topic.enable is true on brokers 1,3: give every broker the same value; the stricter one holds"
    )
    assert len(told) == len(set(told))


@in_world()
async def test_a_guard_outlives_the_broker_that_has_it_while_replicas_are_assigned_to_it(w: KafkaWorld) -> None:
    asking(w, every={"unclean.leader.election.enable": "true"}, broker_1={"unclean.leader.election.enable": "false"})
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await settled(w)
    await w.alter_partition(1, w.proposal("t", 0, (1,)))
    w.die(1)
    await w.propagated()
    assert w.leaders()["t", 0] == (-1, (1,)), "broker 1 forbids unclean elections, and may come back"
    assert w.term.controller.unclean.default is False


@in_world()
async def test_a_broker_that_goes_is_journalled_with_its_session_timeout_where_it_was_reported(w: KafkaWorld) -> None:
    asking(w, broker_1={SESSION: "9000"}, broker_2={SESSION: "99999999999"})
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.begin_term()
    await settled(w)
    for broker in (1, 2):
        w.die(broker)
        await w.settle()
    downs = [(row.broker, row.session_ms) for row in w.book.rows() if row.kind == Kind.BROKER_DOWN]
    assert downs == [(1, 9_000), (2, None)]

"""An admin secret that a daemon cannot use, or that is replaced: shown everywhere, repaired without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from admin.carrier import Carrier
from admin.cluster_view import ClusterView
from admin.ports import Address, Call, NotController
from brokers.security.shared_secret import Seals
from brokers.wire.errors import Error
from brokers.wire.messages import request_codec
from brokers.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from brokers.wire.versions import Api
from controller.daemon.handback import finish
from controller.daemon.preflight.context import Finding, Level
from controller.operator.view import View
from controller.role.own_znodes import this_process
from metadata_store import paths
from metadata_store.codecs.cluster import encode_cluster_id
from metadata_store.codecs.controller import ControllerZnode, decode_controller
from metadata_store.errors import MultiFailed
from metadata_store.port import ANY_VERSION
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually
from tests.kit.kafka.parts import SECRET
from tests.kit.kafka.role import CLUSTER_ID, DAEMON, Kafka, kafka
from tests.kit.kafka.world import Seat, world

OTHER = b"another secret of the same length"
TROUBLE = "may be read or changed by others: chmod 600"
AT = Address("regent1", 9096)


@pytest.fixture(autouse=True)
def _reads_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.daemon.state.READ_S", 0.02)


def secret_file(cluster: Kafka, secret: bytes = SECRET, mode: int = 0o600) -> Path:
    """Writes the file, complete with its mode once it has its name."""
    file = cluster.settings.secret_file
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name("draft")
    draft.write_text(secret.hex())
    draft.chmod(mode)
    return draft.rename(file)


@asynccontextmanager
async def endpoint(cluster: Kafka, secret: bytes = SECRET) -> AsyncIterator[Carrier]:
    """Runs an admin endpoint beside the daemon, without its own listener."""
    view = ClusterView("CLIENT", secret, AT, announced_for=DAEMON)
    following = asyncio.create_task(view.follow(lambda: MemoryZooKeeper(cluster.server), 1.0))
    carrier = Carrier(view, secret)
    try:
        yield carrier
    finally:
        carrier.close()
        following.cancel()
        await asyncio.wait({following})


async def carries(carrier: Carrier) -> bool:
    """Returns whether the daemon handles a client's call that the endpoint carries to it."""
    body = CreateTopicsRequest((CreatableTopic("t", 1, 1, (), ()),), 500)
    frame = b"\0\x13\0\4\0\0\0\1\xff\xff" + request_codec(Api.CREATE_TOPICS, 4).write(body)
    try:
        answer = await carrier.carry(Call(Api.CREATE_TOPICS, 4, body, "User:ANONYMOUS", None, "10.0.0.7", frame))
    except NotController:
        return False
    return answer.topics[0].error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)  # type: ignore[attr-defined]


async def warning(cluster: Kafka, name: str) -> Finding:
    found = await cluster.finding(name)
    assert found.level is Level.WARNING, found
    return found


async def test_a_secret_that_others_may_read_is_shown_on_a_standby_and_is_repaired_during_a_term(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka(tmp_path) as cluster:
        file = secret_file(cluster, mode=0o644)
        async with cluster.daemon(secret_file=file) as daemon, endpoint(cluster) as carrier:
            view = View(daemon, cluster.dial, cluster.release_of)
            await eventually(lambda: TROUBLE in caplog.text)
            assert TROUBLE in (await warning(cluster, "secrets")).text
            assert f"daemon {DAEMON} on" in (await warning(cluster, "daemons agree")).text
            await view.refresh()
            assert TROUBLE in (view.whole.status().admin_endpoint_trouble or "")
            assert (view.readiness().ok, TROUBLE in view.readiness().why) == (True, True)
            await cluster.take_over()
            await cluster.serving(daemon)
            assert not await carries(carrier)
            assert view.whole.status().admin_endpoint is None
            file.chmod(0o600)
            await eventually(lambda: carries(carrier))
            await eventually(lambda: view.whole.status().admin_endpoint == "regent1:9096 on listener CLIENT")
            await view.refresh()
            assert view.whole.status().admin_endpoint_trouble is None
            assert view.readiness().why == "controller at epoch 2"
            assert (await cluster.finding("daemons agree")).text.startswith("1 daemons have the same admin secret")
            assert caplog.text.count(TROUBLE) == 1, "it is logged once"


async def test_a_secret_that_is_replaced_during_a_term_is_used_and_the_term_goes_on(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        file = secret_file(cluster)
        async with cluster.daemon(secret_file=file) as daemon:
            await cluster.take_over()
            await cluster.serving(daemon)
            epoch = await cluster.epoch()
            async with endpoint(cluster) as carrier:
                await eventually(lambda: carries(carrier))
            secret_file(cluster, OTHER)
            async with endpoint(cluster, OTHER) as carrier:
                await eventually(lambda: carries(carrier))
            assert await cluster.epoch() == epoch


async def test_seals_from_before_the_cluster_had_an_id_are_made_again_with_it(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.operator.delete(paths.CLUSTER_ID, ANY_VERSION)
        async with cluster.daemon(secret_file=secret_file(cluster)) as daemon, endpoint(cluster) as carrier:
            await cluster.role().set_flag("regent", "given before", "uid 0")
            await cluster.serving(daemon)
            await eventually(lambda: carries(carrier))
            await cluster.operator.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID))
            await cluster.add(4)
            await eventually(lambda: sealed_with_id(cluster))
            await eventually(lambda: carries(carrier))
            assert (await cluster.finding("daemons agree")).text.startswith("1 daemons have the same admin secret")


async def sealed_with_id(cluster: Kafka) -> bool:
    """Returns whether the seal of ``/controller`` has the cluster's id."""
    held = decode_controller(paths.CONTROLLER, (await cluster.operator.get(paths.CONTROLLER)).data)  # type: ignore[union-attr]
    assert isinstance(held, ControllerZnode)
    sealed = held.broker, held.nonce or "", held.listener or "", held.seal or ""
    return Seals(SECRET, CLUSTER_ID).is_controller(*sealed)


async def test_a_secret_that_others_may_read_since_a_later_time_is_reported_and_still_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka(tmp_path) as cluster:
        file = secret_file(cluster)
        async with cluster.daemon(secret_file=file) as daemon, endpoint(cluster) as carrier:
            await cluster.take_over()
            await cluster.serving(daemon)
            await eventually(lambda: carries(carrier))
            file.chmod(0o644)
            await eventually(lambda: "continues with the admin secret that it read before" in caplog.text)
            await eventually(lambda: carries(carrier))


async def test_a_standby_shows_the_endpoint_beside_it_and_one_with_another_secret(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        await view.refresh()
        assert "none has announced itself" in (view.whole.status().admin_endpoint_trouble or "")
        async with endpoint(cluster):
            await eventually(lambda: shown(view, "regent1:9096 on listener CLIENT"))
            assert view.whole.status().admin_endpoint_trouble is None
        async with endpoint(cluster, OTHER):
            await eventually(lambda: shown(view, None))
            await eventually(lambda: trouble(view, "is not sealed with this daemon's admin secret"))


async def shown(view: View, where: str | None) -> bool:
    await view.refresh()
    return view.whole.status().admin_endpoint == where


async def trouble(view: View, text: str) -> bool:
    await view.refresh()
    return text in (view.whole.status().admin_endpoint_trouble or "")


async def test_a_seal_is_written_again_only_while_the_claim_holds() -> None:
    async with world() as w:
        await w.give_role_to("regent")
        seat = await Seat(w).sit()
        claim = await seat.role.claim()
        before = w.node(paths.CONTROLLER)
        await seat.role.seal_again(claim)
        assert w.node(paths.CONTROLLER) == before, "nothing is written under an unchanged secret"
        later = await seat.role.claim()
        seat.role.take_secret(OTHER)
        held = w.node(paths.CONTROLLER)
        with pytest.raises(MultiFailed):
            await seat.role.seal_again(claim)
        assert w.node(paths.CONTROLLER) == held
        await seat.role.seal_again(later)
        assert w.node(paths.CONTROLLER) != held
        await seat.role.claim()


async def test_a_hand_back_is_completed_by_a_daemon_whose_queue_position_was_sealed_again() -> None:
    async with world() as w:
        await w.give_role_to("regent")
        former, seat = await Seat(w).sit(), await Seat(w, me=this_process(DAEMON + 1)).sit()
        await former.role.claim()
        seat.role.take_secret(OTHER)
        await seat.role.seal_again(None)
        await w.give_role_to("brokers")
        assert "of a former daemon was deleted" in (await finish(seat.role) or "")

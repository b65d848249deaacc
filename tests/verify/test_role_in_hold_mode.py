"""``on_absence = hold``: the lock on the election is set, verified, and taken away again, under acks=all load."""

from __future__ import annotations

import pytest

from cli.exit_codes import Exit
from metadata_store import paths
from metadata_store.acl import OPEN
from metadata_store.port import ANY_VERSION
from tests.cluster.scene import Scene, regent, scene
from tests.polling import eventually


async def locked(stage: Scene) -> bool:
    acls, _ = await stage.w.zk.get_acls(paths.CONTROLLER_EPOCH)
    return set(acls) != set(OPEN)


@pytest.mark.seed("S4-77", "S4-86")
async def test_handback_opens_the_election_and_takeover_locks_it_again() -> None:
    async with scene(chroot="/kafka") as stage:
        hold = {"controller.on_absence": "hold", "zookeeper.digest_file": str(stage.w.digest_file())}
        await stage.daemon.stop()
        stage.daemon.configure(hold)
        await stage.daemon.boot()
        assert await locked(stage)

        code, out, err = await regent(stage.daemon, "handback", "--yes", "--wait")
        assert code == Exit.DONE, (out, err)
        await stage.w.broker_controls()
        assert not await locked(stage)
        await stage.flows()
        code, out, err = await regent(stage.daemon, "takeover", "--yes", "--wait")
        assert code == Exit.DONE, (out, err)
        await stage.active()
        assert await locked(stage)

        await stage.daemon.kill()
        await stage.w.daemons_gone()
        assert await stage.w.controller() == stage.daemon.id, "/controller is persistent"
        code, out, err = await regent(stage.daemon, "handback", "--offline", "--yes")
        assert code == Exit.DONE, (out, err)
        await stage.w.broker_controls()
        assert not await locked(stage)

        # back to the default: a daemon that finds the old lock lifts it
        await stage.daemon.boot()
        assert await locked(stage)
        await stage.daemon.stop()
        stage.daemon.configure({"zookeeper.digest_file": str(stage.w.digest_file())})
        await stage.daemon.boot()
        assert not await locked(stage)
        await stage.proven()


@pytest.mark.seed("S4-77", "S4-86")
async def test_controller_deleted_by_hand_is_claimed_again_and_no_broker_gets_it() -> None:
    async with scene() as stage:
        hold = {"controller.on_absence": "hold", "zookeeper.digest_file": str(stage.w.digest_file())}
        await stage.daemon.stop()
        stage.daemon.configure(hold)
        await stage.daemon.boot()
        epoch = await stage.active()
        await stage.w.zk.delete(paths.CONTROLLER, ANY_VERSION)

        async def again() -> bool:
            return await stage.w.controller() == stage.daemon.id and await stage.w.epoch() == epoch + 1

        await eventually(again, 20.0)
        await stage.active()
        await stage.proven()

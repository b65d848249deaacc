"""The znodes of the role itself are overwritten by hand: the daemon says so, and goes on once they are mended."""

from __future__ import annotations

import pytest

from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from tests.cluster.scene import Scene, scene
from tests.polling import eventually

GARBAGE = b'{"version":'


@pytest.mark.seed("S4-77", "S4-86")
async def test_scribbles_over_the_role_are_named_and_got_over() -> None:
    async with scene() as stage:
        zk, epoch = stage.w.zk, await stage.active()

        # whoever overwrites /controller loses to the next claim
        await zk.set(paths.CONTROLLER, GARBAGE, ANY_VERSION)
        await eventually(lambda: _holds_role(stage, epoch + 1), 30.0)
        await stage.proven()

        # the flag is looked at before a claim only: who holds the role keeps it
        flag = await zk.get(own.ROLE)
        assert flag is not None
        await zk.set(own.ROLE, GARBAGE, ANY_VERSION)
        await stage.flows()
        assert await _holds_role(stage, epoch + 1)
        await stage.daemon.stop()
        stage.daemon = stage.w.daemon()
        await stage.daemon.boot("standby")
        await eventually(lambda: _says(stage, own.ROLE), 10.0)
        await zk.set(own.ROLE, flag.data, ANY_VERSION)
        await stage.active()
        await stage.proven()

        # without an epoch nobody can be elected, no broker either, and the cluster serves on
        found = await zk.get(paths.CONTROLLER_EPOCH)
        assert found is not None
        await zk.set(paths.CONTROLLER_EPOCH, b"many", ANY_VERSION)
        await eventually(lambda: _says(stage, paths.CONTROLLER_EPOCH), 30.0)
        await stage.flows()
        await zk.set(paths.CONTROLLER_EPOCH, found.data, ANY_VERSION)
        await eventually(lambda: _holds_role(stage, int(found.data or b"0") + 1), 30.0)
        await stage.proven()

        # foreign children among our own
        await zk.create(f"{own.LOCKS}/somebody", b"else")
        await zk.create(f"{own.DAEMONS}/not-a-number", b"\xff")
        await stage.daemon.kill()
        await stage.daemon.boot(None)
        await zk.delete(f"{own.LOCKS}/somebody", ANY_VERSION)
        await stage.active()
        await stage.proven()


async def _holds_role(stage: Scene, epoch: int) -> bool:
    status = await stage.daemon.status()
    return status is not None and (status["mode"], status["controllerEpoch"]) == ("active", epoch)


async def _says(stage: Scene, path: str) -> bool:
    status = await stage.daemon.status()
    return status is not None and status["mode"] != "active" and path in status["why"]

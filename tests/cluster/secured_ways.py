"""What must work over every protocol and mechanism that brokers speak to each other."""

from __future__ import annotations

from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from cli.demo.process import RegentProcess
from tests.cluster.endpoint import endpoint
from tests.cluster.scene import agreed
from tests.cluster.secured import Secured
from tests.cluster.world import World, world


async def in_office(w: World, daemon: RegentProcess) -> None:
    """Every broker is told, and tells the daemon what it has."""
    await w.store.create_topic("t", {0: [1, 2], 1: [2, 1]})
    await w.healed()
    await agreed(daemon)


async def works_both_ways(tmp_path: Path, protocol: str, mechanism: str) -> None:
    """Telling goes to the brokers; ISR changes, controlled shutdowns and clients' calls come to the daemon."""
    secured = Secured(tmp_path, protocol, mechanism)
    async with world(2, replication=2, properties=secured.properties()) as w:
        await secured.introduce(w)
        daemon = w.daemon(flags=["--takeover"], settings=secured.settings())
        await daemon.boot()
        await in_office(w, daemon)
        async with endpoint(daemon) as at:
            client = AIOKafkaAdminClient(bootstrap_servers=at.address)
            await client.start()
            created = await client.create_topics([NewTopic("carried", 1, 2)])
            assert [(each[0], each[1]) for each in created.topic_errors] == [("carried", 0)]
            await client.close()
        gone = await w.cluster.brokers[1].shut_down()
        assert gone.first_try
        await w.leads_nothing(1)
        await w.cluster.brokers[1].boot()
        await w.healed()
        await agreed(daemon)

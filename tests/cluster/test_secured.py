"""Brokers that speak TLS and SASL among themselves, and a daemon that is their controller all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from cli.demo.process import RegentProcess
from tests.cluster.endpoint import endpoint
from tests.cluster.scene import agreed, regent
from tests.cluster.secured import Secured
from tests.cluster.world import World, world


async def in_office(w: World, daemon: RegentProcess) -> None:
    """Every broker is told, and tells the daemon what it has."""
    await w.store.create_topic("t", {0: [1, 2], 1: [2, 1]})
    await w.healed()
    await agreed(daemon)


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "PLAIN"), ("SSL", "PLAIN")],
)
async def test_both_directions(tmp_path: Path, protocol: str, mechanism: str) -> None:
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


async def test_certificates_are_renewed_and_strangers_stay_outside(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    async with world(2, replication=2, properties=secured.properties()) as w:
        await secured.introduce(w)
        daemon = w.daemon(flags=["--takeover"], settings=secured.settings())
        await daemon.boot()
        await in_office(w, daemon)

        secured.authority.signed("renewed", into=secured.daemon)
        await w.cluster.brokers[2].restart()
        await w.healed()
        await agreed(daemon)
        assert "certificates were read again" in daemon.log_text()

        wrong = tmp_path / "wrong"
        wrong.write_text("kafka:nobody-knows\n", encoding="utf-8")
        for settings, told in (
            ({"security.sasl_file": str(wrong)}, "SASL SCRAM-SHA-512 as kafka is refused"),
            ({"security.sasl_mechanism": "PLAIN"}, "SASL PLAIN is not offered, but SCRAM-SHA-512"),
            ({"security.ca_file": str(tmp_path / "broker.pem")}, "certificate is not accepted"),
            ({"security.protocol": "PLAINTEXT"}, "security.protocol is PLAINTEXT"),
            ({"security.sasl_file": str(tmp_path / "none")}, "cannot be read"),
        ):
            stranger = w.daemon(settings=secured.settings() | settings)
            code, out, err = await regent(stranger, "preflight")
            assert code, out
            assert told in out + err, (told, out + err)

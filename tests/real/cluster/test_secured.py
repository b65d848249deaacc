"""A daemon is the controller of brokers with TLS and SASL between them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.real.cluster.scene import agreed, regent
from tests.real.cluster.secured import Secured
from tests.real.cluster.secured_ways import serving, works_both_ways
from tests.real.cluster.world import world


async def test_both_directions(tmp_path: Path) -> None:
    await works_both_ways(tmp_path, "SASL_SSL", "SCRAM-SHA-512")


async def test_renewed_certificates_are_read_and_a_preflight_with_wrong_credentials_is_refused(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    async with world(2, replication=2, properties=secured.properties()) as w:
        await secured.introduce(w)
        daemon = w.daemon(flags=["--takeover"], settings=secured.settings())
        await daemon.boot()
        await serving(w, daemon)

        secured.authority.signed("renewed", into=secured.daemon)
        await w.cluster.brokers[2].restart()
        await w.healed()
        await agreed(daemon)
        assert "certificates were read again" in daemon.log_text()

        wrong = tmp_path / "wrong"
        wrong.write_text("kafka:nobody-knows\n", encoding="utf-8")
        refused = (
            ({"security.sasl_file": str(wrong)}, "SASL SCRAM-SHA-512 as kafka is refused"),
            ({"security.sasl_mechanism": "PLAIN"}, "SASL PLAIN is not offered, but SCRAM-SHA-512"),
            ({"security.ca_file": str(tmp_path / "broker.pem")}, "certificate is not accepted"),
            ({"security.protocol": "PLAINTEXT"}, "security.protocol is PLAINTEXT"),
            ({"security.sasl_file": str(tmp_path / "none")}, "cannot be read"),
        )
        strangers = [w.daemon(settings=secured.settings() | settings) for settings, _ in refused]
        ends = await asyncio.gather(*(regent(stranger, "preflight") for stranger in strangers))
        for (_, text), (code, out, err) in zip(refused, ends, strict=True):
            assert code, out
            assert text in out + err, (text, out + err)

"""Expired delegation tokens disappear from ZooKeeper and from a real broker's memory."""

from __future__ import annotations

from pathlib import Path

from metadata_store.nodes.delegation_tokens import token_ids
from testing.embedded.tools import Finished, Tools
from tests.kit.polling import eventually
from tests.real.cluster.test_admin_sasl import LOGIN_MODULE, SECURED
from tests.real.cluster.world import world

SHORT_MS, LONG_MS = "3000", "3600000"


async def test_an_expired_token_is_removed_from_zookeeper_and_from_the_broker(tmp_path: Path) -> None:
    tokens = {"delegation.token.secret.key": "a secret of all brokers"}
    async with world(1, replication=1, properties=SECURED | tokens) as w:
        every = {"controller.delegation_token_expiry_check_interval_ms": 500}
        daemon = w.daemon(flags=["--takeover"], settings=every)
        await daemon.boot()
        client = tmp_path / "client.properties"
        client.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={LOGIN_MODULE} required username="alice" password="secret";\n',
            encoding="utf-8",
        )
        tools = Tools(w.cluster.bootstrap[0], tmp_path)

        async def run(*arguments: str) -> Finished:
            done = await tools.run("kafka-delegation-tokens", "--command-config", str(client), *arguments)
            assert done.code == 0, done
            return done

        made = [await run("--create", "--max-life-time-period", life) for life in (LONG_MS, SHORT_MS)]

        async def one_left() -> bool:
            return len(await token_ids(w.zk)) == 1

        await eventually(one_left, 60.0)
        [left] = await token_ids(w.zk)
        assert [left in token.out for token in made] == [True, False]

        async def forgotten() -> bool:
            known = (await run("--describe", "--owner-principal", "User:alice")).out
            return "Total number of tokens : 1" in known and left in known

        await eventually(forgotten, 60.0)

"""The brokers' own policy class, unchanged, asked by the daemon in a JVM, and by Kafka's own controller."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from controller.process.policy_hooks import JvmHook, PolicyFailed
from testing.embedded.jars import jars
from testing.embedded.java import find_java
from testing.embedded.tools import Tools
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.world import world
from tests.kit.deadlines import eventually

SOURCE = Path(__file__).with_name("TeamRules.java")
KEY = "create.topic.policy.class.name"
FIELDS = (
    b'{"topic":"%s","numPartitions":%s,"replicationFactor":%s,"replicasAssignments":%s,"configs":{"retention.ms":"%s"}}'
)


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Compiles the policy; returns its folder."""
    java = Path(find_java().path).resolve()
    if not java.with_name("javac").exists():
        pytest.skip("this Java has no compiler")
    monkeypatch.setenv("PATH", f"{java.parent}:{os.environ['PATH']}")
    folder = tmp_path / "rules"
    command = [str(java.with_name("javac")), "-cp", class_path(), "-d", str(folder), str(SOURCE)]
    subprocess.run(command, check=True, timeout=60)
    return folder


def class_path(*more: Path) -> str:
    return ":".join(map(str, [*jars(), *more]))


def fields(topic: str, *, replicas: int = 2, given: str = "null", retention: str = "7") -> bytes:
    """Returns the fields as the daemon sends them."""
    numbers = (b"null", b"null") if given != "null" else (b"1", str(replicas).encode())
    return FIELDS % (topic.encode(), *numbers, given.encode(), retention.encode())


async def test_a_class_is_loaded_configured_and_asked_and_its_jvm_begun_again_after_its_death(
    rules: Path, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("team.rules.replicas.min=2\n")
    hook = JvmHook("TeamRules", class_path(rules), str(properties))
    assert await hook.ask(fields("a.b")) is None
    assert await hook.ask(fields("orders")) == "name the owner: team.orders"
    assert await hook.ask(fields("a.b", replicas=1)) == "a.b has 1 replicas, less than 2"
    assert await hook.ask(fields("a.b", given='{"0":[1,2],"1":[3]}')) == "a.b has 1 replicas, less than 2"
    assert await hook.ask(fields("a.b", retention="-1")) == "retention.ms must be limited"
    with pytest.raises(PolicyFailed, match=r"its class has failed: java\.lang\.IllegalStateException: a bug"):
        await hook.ask(fields("a.strange"))
    assert await hook.ask(fields("a.b")) is None
    process = hook._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(PolicyFailed, match="its JVM"):
        await hook.ask(fields("a.b"))
    assert await hook.ask(fields("a.b")) is None, "another JVM was begun"
    await hook.close()


async def test_what_the_jvm_itself_prints_is_no_answer(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xlog:gc=info:stdout -XX:+UseSerialGC -Xlog:safepoint=info:stdout")
    hook = JvmHook("TeamRules", class_path(rules))
    found = []
    for topic in ("a.b", "orders", "a.b", "orders"):
        try:
            found.append(await hook.ask(fields(topic)))
        except PolicyFailed as failed:
            found.append(f"failed: {failed}")
    await hook.close()
    assert found == [None, "name the owner: team.orders", None, "name the owner: team.orders"]


async def test_a_class_that_is_not_there_is_named(rules: Path) -> None:
    hook = JvmHook("NoSuchRules", class_path(rules))
    with pytest.raises(PolicyFailed, match=r"NoSuchRules cannot be loaded: java\.lang\.ClassNotFoundException"):
        await hook.ask(fields("a.b"))
    await hook.close()


async def test_clients_get_the_answers_of_the_brokers_class_from_the_daemon_as_from_kafkas_controller(
    rules: Path, tmp_path: Path
) -> None:
    async with world(1, properties={KEY: "TeamRules"}, classes=[rules]) as w:
        await w.broker_controls()

        async def tried(tools: Tools) -> tuple[tuple[int, bool], int]:
            refused = await tools.run("kafka-topics", "--create", "--topic", "orders", "--partitions", "1")
            made = await tools.run("kafka-topics", "--create", "--if-not-exists", "--topic", "a.b", "--partitions", "1")
            return (refused.code, "name the owner: team.orders" in refused.out + refused.err), made.code

        by_kafka = await eventually(lambda: tried(Tools(w.cluster.bootstrap[0], tmp_path)), 60.0)
        assert by_kafka == ((1, True), 0)
        asks = {"create_topic_policy": ["java", class_path(rules)], "create_topic_policy_timeout_ms": 30_000}
        settings = {f"controller.{key}": value for key, value in asks.items()}
        daemon = w.daemon(flags=["--takeover"], settings=settings)
        await daemon.boot()
        async with endpoint(daemon) as at:
            assert await tried(Tools(at.address, tmp_path)) == by_kafka

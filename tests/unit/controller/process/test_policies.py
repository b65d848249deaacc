"""Policies on new topics as programs, addresses and classes in a JVM: yes, a text, or no answer."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from configs.sections import ControllerSettings
from controller.kafka.topics.topic_policy import TopicFields, TopicPolicy
from controller.process import policy_hooks
from controller.process.policy_hooks import CommandHook, HttpHook, JvmHook, PolicyFailed
from controller.regions.fencing import run_command
from tests.kit.deadlines import WITHIN_S, eventually

FIELDS = TopicFields("orders", 6, 2, None, {"retention.ms": "5"})
KAFKAS = {
    "topic": "orders", "numPartitions": 6, "replicationFactor": 2, "replicasAssignments": None,
    "configs": {"retention.ms": "5"},
}  # fmt: skip


def program(folder: Path, body: str) -> list[str]:
    path = folder / "policy"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return [str(path)]


def running(pid: int) -> bool:
    """Returns whether a process runs; one that its parent has yet to bury does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().split()[2] != "Z"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def policy(words: list[str], **changes: Any) -> TopicPolicy:
    return TopicPolicy(ControllerSettings.model_validate({"create_topic_policy": words, **changes}))


def test_the_fields_are_kafkas_own() -> None:
    assert json.loads(msgspec.json.encode(FIELDS)) == KAFKAS
    given = TopicFields("orders", None, None, {0: (1, 2), 1: (2, 3)}, {})
    assert json.loads(msgspec.json.encode(given))["replicasAssignments"] == {"0": [1, 2], "1": [2, 3]}


async def test_a_program_gets_the_fields_and_says_yes_or_why_not(tmp_path: Path) -> None:
    kept = tmp_path / "fields.json"
    hook = CommandHook(program(tmp_path, f"cat > {kept}"))
    assert await hook.ask(msgspec.json.encode(FIELDS)) is None
    assert json.loads(kept.read_bytes()) == KAFKAS
    hook = CommandHook(program(tmp_path, "echo 'orders need'; echo ' three replicas'; exit 1"))
    assert await hook.ask(b"{}") == "orders need three replicas"
    hook = CommandHook(program(tmp_path, "exit 1"))
    assert await hook.ask(b"{}") == "the policy gives no reason"


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("echo no such team; exit 3", "it ended with 3; it said: no such team"),
        ("kill -9 $$", "it ended with -9"),
        ("head -c 100000 /dev/zero", "it said more than 65536 bytes"),
    ],
)
async def test_a_program_without_an_answer_has_failed(tmp_path: Path, body: str, cause: str) -> None:
    with pytest.raises(PolicyFailed) as failed:
        await CommandHook(program(tmp_path, body)).ask(b"x" * 1_000_000)
    assert str(failed.value) == cause


async def test_a_program_that_does_not_exist_refuses_with_the_setting_and_the_cause() -> None:
    found = await policy(["/no/such/program", "--token=secret"]).verdicts([FIELDS])
    assert found == {
        "orders": "controller.create_topic_policy gave no answer, so nothing is created: it cannot be run (No such "
        "file or directory); try again"
    }, "clients do not see the setting's value"


async def test_a_class_that_is_not_known_yet_allows_nothing_and_none_at_all_allows_everything() -> None:
    settings = ControllerSettings.model_validate({"create_topic_policy": ["java", "/libs/*"]})
    [found] = (await TopicPolicy(settings, lambda: None).verdicts([FIELDS])).values()
    assert "no broker has reported its create.topic.policy.class.name yet" in str(found)
    assert await TopicPolicy(settings, lambda: "").verdicts([FIELDS]) == {"orders": None}


def pid_in(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


async def child_of(program: list[str], alive: Path) -> int:
    """Asks a program that takes too long, again where it had no time to start a child; returns its child."""

    async def is_late() -> int:
        found = await policy(program, create_topic_policy_timeout_ms=500).verdicts([FIELDS])
        assert "it did not answer within 0.5 s" in str(found["orders"])
        return pid_in(alive)

    return await eventually(is_late)


async def test_a_program_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    child = await child_of(program(tmp_path, f"sh -c 'echo $$ > {alive}; sleep 600' & wait"), alive)
    await eventually(lambda: not running(child))


async def test_a_program_whose_question_is_given_up_as_it_starts_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop stands still meanwhile, and the time is over once it goes on: nobody has the process yet."""
    alive, popen = tmp_path / "alive", subprocess.Popen

    def started(*arguments: Any, **named: Any) -> Any:
        process = popen(*arguments, **named)
        until_s = time.monotonic() + WITHIN_S
        while not pid_in(alive):
            assert time.monotonic() < until_s
            time.sleep(0.01)
        asking.cancel()
        return process

    monkeypatch.setattr(subprocess, "Popen", started)
    hook = CommandHook(program(tmp_path, f"sh -c 'echo $$ > {alive}; sleep 600' & wait"))
    asking = asyncio.ensure_future(hook.ask(b"{}"))
    await asyncio.wait({asking}, timeout=WITHIN_S)
    assert asking.cancelled()
    child = pid_in(alive)
    await eventually(lambda: not running(child))


async def test_a_child_that_a_program_leaves_is_killed_where_it_keeps_the_answer_open(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    before = open_files()
    child = await child_of(program(tmp_path, f"sleep 600 & echo $! > {alive}; exit 0"), alive)
    await eventually(lambda: not running(child))
    await eventually(lambda: open_files() <= before)


async def test_so_many_topics_are_asked_for_at_once_and_each_has_its_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most = 0, 0

    async def ask(_: CommandHook, fields: bytes) -> str | None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        name = json.loads(fields)["topic"]
        return "odd" if int(name) % 2 else None

    monkeypatch.setattr(CommandHook, "ask", ask)
    asked = [TopicFields(str(number), 1, 1, None, {}) for number in range(9)]
    found = await policy(["/bin/true"], create_topic_policy_calls_max=3).verdicts(asked)
    assert found == {str(n): "odd" if n % 2 else None for n in range(9)}
    assert most == 3


@asynccontextmanager
async def service(respond: Callable[[bytes], Awaitable[bytes]]) -> AsyncIterator[str]:
    """Serves requests with a body on a port of this machine."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
        writer.write(await respond(await reader.readexactly(length)))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/topics"


def response(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (status.encode(), len(body), body)


async def test_an_address_gets_the_fields_and_says_yes_or_why_not() -> None:
    asked: list[Any] = []
    answers = [b'{"allowed":true}', b'{"allowed":false,"reason":"no team"}', b'{"allowed":false}']

    async def respond(body: bytes) -> bytes:
        asked.append(json.loads(body))
        return response(answers[len(asked) - 1])

    async with service(respond) as url:
        hook = HttpHook(url, 60.0)
        found = [await hook.ask(msgspec.json.encode(FIELDS)) for _ in answers]
        await hook.close()
    assert found == [None, "no team", "the policy gives no reason"]
    assert asked == [KAFKAS] * 3


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (response(b"teapot", "418 I am"), "it responds with status 418: teapot"),
        (response(b"yes"), "its answer is not"),
        (response(b"{}"), "its answer is not"),
        (response(b" " * 100_000), "more than 65536 bytes"),
        (b"", "disconnected"),
    ],
)
async def test_an_address_without_an_answer_has_failed(answer: bytes, cause: str) -> None:
    async def respond(_: bytes) -> bytes:
        return answer

    async with service(respond) as url:
        hook = HttpHook(url, 60.0)
        with pytest.raises(PolicyFailed, match=cause):
            await hook.ask(b"{}")
        await hook.close()
    hook = HttpHook(url, 60.0)
    with pytest.raises(PolicyFailed, match="connect"):
        await hook.ask(b"{}")
    await hook.close()


def test_long_texts_are_cut_short() -> None:
    long = json.dumps({"allowed": False, "reason": "x" * 9_000}).encode()
    assert len(policy_hooks.answer_of(long) or "") == policy_hooks.REASON_CHARS_MAX + 3


@pytest.mark.parametrize(
    "words",
    [["/bin/policy", "-v"], ["https://policies/topics"], ["java", "/libs/*"], ["java", "/libs/*", "/etc/x.properties"]],
)
def test_settings_that_name_a_policy(words: list[str]) -> None:
    for given in (words, json.dumps(words)):
        found = ControllerSettings.model_validate({"create_topic_policy": given})
        assert found.create_topic_policy == tuple(words)


@pytest.mark.parametrize(
    "words",
    [[], ["policy"], ["java"], ["java", ""], ["java", "a", "b", "c"], ["https://policies", "more"], "/bin/policy", [7]],
)
def test_settings_that_name_none_are_refused(words: object) -> None:
    with pytest.raises(ValueError, match="create_topic_policy"):
        ControllerSettings.model_validate({"create_topic_policy": words})


ECHO = """
import json, sys
print("[0.01s][warning][os,container] a file is odd", flush=True)
for line in sys.stdin:
    number, fields = line.split(" ", 1)
    if fields == "hang\\n":
        sys.stdin.read()
    answer = json.dumps({"allowed": False, "reason": fields.strip()})
    print("[warning] late", number + " " + answer, sep="\\n", flush=True)
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts an empty ``java`` in the place of the machine's."""
    path = tmp_path / "java"
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


def script(path: Path, body: str) -> None:
    path.write_text(body)
    path.chmod(0o755)


async def test_lines_without_the_number_of_the_question_are_no_answer(java: Path) -> None:
    script(java, f"#!{sys.executable}\n{ECHO}")
    hook = JvmHook("Rules", "/libs/*")
    assert [await hook.ask(b"one"), await hook.ask(b"two"), await hook.ask(b"three")] == ["one", "two", "three"]
    await hook.close()


async def test_a_jvm_that_starts_slowly_is_waited_for_and_one_that_hangs_later_is_begun_anew(
    java: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    script(java, f"#!{sys.executable}\nimport time\nopen({str(begun)!r}, 'a').write('x')\ntime.sleep(2)\n{ECHO}")
    hook = JvmHook("Rules", "/libs/*")

    async def asked(fields: bytes) -> str | None:
        """Returns the answer; empty where it does not come in time."""
        try:
            async with asyncio.timeout(1):
                return await hook.ask(fields)
        except TimeoutError:
            return ""

    assert await asked(b"one") == ""
    assert await eventually(lambda: asked(b"two")) == "two"
    assert await asked(b"hang") == ""
    assert begun.read_text() == "x", "one JVM until it hung"
    assert await eventually(lambda: asked(b"three")) == "three"
    assert begun.read_text() == "xx"
    await hook.close()


async def test_a_java_that_cannot_be_run_leaves_nothing_open(java: Path) -> None:
    script(java, "\x7fELF of another machine")
    hook = JvmHook("Rules", "/libs/*")
    before = open_files()
    for _ in range(3):
        with pytest.raises(PolicyFailed, match="java cannot be run"):
            await hook.ask(b"{}")
    assert open_files() == before


async def test_commands_get_the_environment_without_the_daemons_settings(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGENT_ZOOKEEPER__DIGEST", "regent:secret")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("REGENT_CONFIG", "/etc/regent/regent.toml")
    kept = tmp_path / "kept"
    program = java.with_name("program")
    for path in (java, program):
        script(path, f"#!/bin/sh\n/usr/bin/env > {kept}\n")
    found = []
    with pytest.raises(PolicyFailed):
        await JvmHook("Rules", "/libs/*").ask(b"{}")
    found.append(kept.read_text())
    assert await CommandHook([str(program)]).ask(b"{}") is None
    found.append(kept.read_text())
    await run_command([str(program)], 10.0)
    found.append(kept.read_text())
    for environment in found:
        assert "secret" not in environment
        assert "NOTIFY_SOCKET" not in environment
        assert "REGENT_CONFIG=/etc/regent/regent.toml" in environment

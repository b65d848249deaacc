"""The JVM of a policy class, here a script in its place: its lines, its environment, and what a failed start leaves."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from controller.process.policy_hooks import CommandHook, PolicyFailed
from controller.process.policy_jvm import JvmHook
from controller.regions.fencing import run_command
from tests.kit.polling import eventually

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


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_lines_without_the_number_of_the_question_are_no_answer(java: Path) -> None:
    script(java, f"#!{sys.executable}\n{ECHO}")
    hook = JvmHook("Rules", "/libs/*")
    assert [await hook.ask(b"one"), await hook.ask(b"two"), await hook.ask(b"three")] == ["one", "two", "three"]
    await hook.close()


async def test_a_jvm_that_starts_slowly_is_waited_for_and_one_that_hangs_later_is_begun_anew(
    java: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    script(java, f"#!{sys.executable}\nimport time\nopen({str(begun)!r}, 'a').write('x')\ntime.sleep(1)\n{ECHO}")
    hook = JvmHook("Rules", "/libs/*")

    async def asked(fields: bytes) -> str | None:
        """Returns the answer; empty where it does not come in time."""
        try:
            async with asyncio.timeout(0.3):
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

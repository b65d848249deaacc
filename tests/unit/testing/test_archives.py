"""Archives of classes are used where they fit; without them a warning is logged."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from testing.embedded import archives, class_archives, jvm
from testing.embedded.java import Java

JARS = (Path("/jars/kafka.jar"), Path("/jars/zookeeper.jar"))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """Returns a Java; the cache folder is empty."""
    monkeypatch.setenv("REGENT_CACHE", str(tmp_path / "cache"))
    binary = tmp_path / "java"
    binary.write_text("")
    return Java(str(binary), 17, "PATH")


def archived(kind: str, java: Java) -> Path:
    path = class_archives.archive(kind, java, JARS)
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
def test_a_program_uses_the_archive_of_its_kind_once_it_is_there(java: Java, main_class: str, kind: str) -> None:
    others = [archived(other, java) for other in class_archives.KINDS if other != kind]
    assert class_archives.options(main_class, java, JARS) == []
    path = archived(kind, java)
    assert path not in others
    assert f"-XX:SharedArchiveFile={path}" in class_archives.options(main_class, java, JARS)


def test_another_java_and_other_jars_have_another_archive(java: Java) -> None:
    path = archived(class_archives.BROKER, java)
    assert class_archives.archive(class_archives.BROKER, java, JARS[:1]) != path
    Path(java.path).write_text("upgraded")
    assert class_archives.archive(class_archives.BROKER, java, JARS) != path


def test_the_command_of_a_jvm_names_it(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "find_java", lambda: java)
    monkeypatch.setattr(jvm, "jars", lambda: JARS)
    before = jvm.java_command([], "kafka.Kafka")
    assert not [option for option in before if "Archive" in option]
    path = archived(class_archives.BROKER, java)
    assert f"-XX:SharedArchiveFile={path}" in jvm.java_command([], "kafka.Kafka")


def test_a_machine_that_cannot_make_archives_gets_a_warning(
    java: Java, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def make(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(archives, "find_java", lambda: java)
    monkeypatch.setattr(archives, "jars", lambda: JARS)
    monkeypatch.setattr(archives, "make", make)
    with caplog.at_level(logging.WARNING):
        archives.main()
    assert "No archives of classes are made, so every JVM starts more slowly: no space left" in caplog.text
    caplog.clear()
    for kind in class_archives.KINDS:
        archived(kind, java)
    archives.main()
    assert caplog.text == ""

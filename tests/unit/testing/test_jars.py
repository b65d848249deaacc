"""Jars are the listed ones: damaged, cut or replaced files are fetched again or refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from testing.embedded import jars


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

"""Files of regions: what an open may read, and what it deletes."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.kv import content, files, logs, regions
from examples.kv.content import Content, Entry
from examples.kv.records import Edit, encode
from examples.kv.regions import Lost, StaleOwner
from examples.kv.writer import Segments
from tests.kit.examples.processes import region

FOLDER = "regions/1"


def saved(data: Path, token: int, sequence: int, **entries: str) -> None:
    (data / FOLDER / "recovered").mkdir(parents=True, exist_ok=True)
    held = {key.encode(): Entry(value.encode(), sequence) for key, value in entries.items()}
    regions.save(data, 1, token, Content(sequence, held))


def recovered(data: Path, token: int, *numbers: int) -> None:
    """Recovers edits of the key "a" with these numbers from a log."""
    segments = Segments(data, f"kv-{token}", 1)
    segments.write(b"".join(encode(Edit(1, token, number, b"a", b"%d.%d" % (token, number))) for number in numbers))
    segments.close()
    for part in logs.fence(data, f"kv-{token}", 1):
        logs.split(data, f"kv-{token}", 1, part)


def opened(data: Path, token: int, sequence: int = 0) -> tuple[int, dict[str, str]]:
    found = regions.open_content(data, region(token, sequence=sequence))
    return found.sequence, {key.decode(): entry.value.decode() for key, entry in found.entries.items()}


def names(data: Path) -> list[str]:
    found = (path for path in (data / FOLDER).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(data / FOLDER)) for path in found)


def test_a_new_region_is_empty_and_has_a_file_at_once(tmp_path: Path) -> None:
    assert opened(tmp_path, 3) == (1, {})
    assert names(tmp_path) == [f"{3:020}.sqlite"]


def test_a_folder_is_made_durable_once_and_before_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sync of a folder takes a while on a disk, and a region is opened often."""
    done, sync, save = list[str](), files.sync, regions.save

    def synced(path: Path) -> None:
        done.append(path.name)
        sync(path)

    def written(data: Path, one: int, token: int, found: Content) -> None:
        done.append("save")
        save(data, one, token, found)

    monkeypatch.setattr(files, "sync", synced)
    monkeypatch.setattr(regions, "save", written)
    opened(tmp_path, 3)
    assert done == [tmp_path.name, "regions", "save", "1"]
    done.clear()
    opened(tmp_path, 5)
    assert done == ["save", "1"]


def test_a_copy_of_the_data_without_its_empty_folders_is_opened(tmp_path: Path) -> None:
    opened(tmp_path, 3)
    (tmp_path / FOLDER / "recovered").rmdir()
    assert opened(tmp_path, 5) == (2, {})


def test_sequence_numbers_go_on_over_owners(tmp_path: Path) -> None:
    assert [opened(tmp_path, token)[0] for token in (3, 5, 9)] == [1, 2, 3]


def test_recovered_edits_come_upon_the_file_of_the_same_token(tmp_path: Path) -> None:
    saved(tmp_path, 3, 10, a="file", b="file")
    recovered(tmp_path, 3, 9, 10, 11, 12)
    assert opened(tmp_path, 5) == (13, {"a": "3.12", "b": "file"})
    assert names(tmp_path) == [f"{5:020}.sqlite"], "what is in the new file is deleted"


def test_files_and_edits_of_a_former_owner_are_not_read(tmp_path: Path) -> None:
    """It was frozen, and wrote them once its successor had opened."""
    saved(tmp_path, 5, 10, a="right")
    saved(tmp_path, 3, 40, a="wrong")
    recovered(tmp_path, 3, 11, 12)
    assert opened(tmp_path, 7) == (11, {"a": "right"})
    assert names(tmp_path) == [f"{7:020}.sqlite"]


def test_edits_behind_a_gap_were_never_acknowledged(tmp_path: Path) -> None:
    saved(tmp_path, 3, 10)
    recovered(tmp_path, 3, 11, 13)
    assert opened(tmp_path, 5) == (12, {"a": "3.11"})


@pytest.mark.parametrize("token", [5, 4])
def test_an_open_that_comes_too_late_is_refused(tmp_path: Path, token: int) -> None:
    opened(tmp_path, 5)
    with pytest.raises(StaleOwner, match=f"has token 5, this open has {token}: another server has opened it since"):
        opened(tmp_path, token)
    assert names(tmp_path) == [f"{5:020}.sqlite"]


def test_a_folder_without_what_was_written_is_not_opened(tmp_path: Path) -> None:
    opened(tmp_path, 3)
    with pytest.raises(Lost, match="ends at edit 1, and its last open was 2: restore the folder"):
        opened(tmp_path, 5, sequence=2)


def test_temporary_files_of_former_owners_are_deleted(tmp_path: Path) -> None:
    saved(tmp_path, 3, 10)
    for name in (f"{2:020}.tmp", f"recovered/{3:020},kv-1,1,{1:010}.log.0123.tmp"):
        (tmp_path / FOLDER / name).write_bytes(b"torn")
    opened(tmp_path, 5)
    assert names(tmp_path) == [f"{5:020}.sqlite"]


def test_an_owner_that_finishes_its_open_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was frozen before it opened, and deletes what the reader needs."""
    saved(tmp_path, 3, 10, a="file")
    recovered(tmp_path, 3, 11)
    read = content.read
    late = iter([4])

    def interrupted(path: Path) -> Content:
        found = read(path)
        for token in late:
            opened(tmp_path, token)
        return found

    monkeypatch.setattr(content, "read", interrupted)
    assert opened(tmp_path, 5) == (13, {"a": "3.11"})


def test_a_file_that_is_deleted_while_it_is_read_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 3, 10, a="file")
    read = content.read
    late = iter([4])

    def interrupted(path: Path) -> Content:
        for token in late:
            opened(tmp_path, token)
        return read(path)

    monkeypatch.setattr(content, "read", interrupted)
    assert opened(tmp_path, 5) == (12, {"a": "file"})

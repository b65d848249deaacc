"""regent regions assign and unassign with a file, against a daemon with a real domain and two servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    with world_in_thread(settings_of(tmp_path_factory.mktemp("lists"))) as found:
        yield found


@pytest.fixture(autouse=True)
def socket(world: Blocking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands find the daemon."""
    monkeypatch.setenv("REGENT_SERVER", str(world.socket))


async def test_regions_of_a_file_are_closed_and_opened_and_those_that_cannot_be_are_told(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    for table in ("t", "u"):
        items("tables", "create", table, "--regions", 3, "--wait", "--timeout", 30)
    ids = [one["id"] for one in items("regions", "list")]
    file.write_text("# of the disk\n" + "".join(f"{one}\n" for one in ids[1:]))
    planned = regent("regions", "unassign", "--file", file, "--dry-run")
    assert "5 of 5 regions would be closed" in planned.stdout
    assert planned.stderr == "nothing was changed\n"
    [done] = items("regions", "unassign", "--file", file, "--wait", "--yes", "--reason", "the disk", "--nonce", "n")
    assert (done["kind"], done["state"], done["result"], done["reason"]) == (
        *("close_regions", "success", "5 closed"),
        "the disk",
    )
    [again] = items("regions", "unassign", "--file", file, "--yes", "--nonce", "n")
    assert again["pid"] == done["pid"]
    other = unwrapped(regent("regions", "assign", "--file", file, "--nonce", "n", code=Exit.REFUSED).stderr)
    assert "give another nonce" in other
    file.write_text("".join(f"{one}\n" for one in (*ids, 999_999)))
    left = f"2 left out: #{ids[0]} is open already, #999999 does not exist"
    assert (
        f"5 of 7 regions would be assigned, {left}" in regent("regions", "assign", "--file", file, "--dry-run").stdout
    )
    [done] = items("regions", "assign", "--file", file, "--wait", code=Exit.REFUSED)
    assert (done["result"], done["unmet"]) == (
        f"5 assigned, {left}",
        "1 of 7 regions not assigned: #999999 does not exist",
    )
    assert {one["state"] for one in items("regions", "list")} == {"OPEN"}
    file.write_text("".join(f"{one}\n" for one in ids))
    [done] = items("regions", "assign", "--file", file, "--wait")
    assert done["result"].startswith("0 assigned, 6 left out: "), "all are as they were to be"
    [row] = items("regions", "procedures", "list", "--kind", "assign_regions")[-1:]
    assert row["detail"] == "6 regions, 6 left out"

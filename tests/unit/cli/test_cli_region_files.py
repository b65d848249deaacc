"""Files with ids of regions: what they may have, and what is said of those that have something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cli.client import Client
from cli.commands import region_files
from cli.commands.region_files import ids_of
from cli.exit_codes import Exit, Failure
from state_machines.regions import choosing
from tests.kit.command import regent, unwrapped

HIGHEST = (1 << 63) - 1
PROCEDURE = {"pid": 12, "kind": "assign_regions", "state": "runnable", "ended": False, "stuck": False, "unusable": ""}


@pytest.fixture
def posted() -> Iterator[list[tuple[str, Any]]]:
    """Requests that a daemon would get, in place of which it notes them."""
    found: list[tuple[str, Any]] = []

    def post(path: str, body: Any) -> Any:
        found.append((path, body))
        return {"items": [PROCEDURE]}

    with mock.patch.object(Client, "post", lambda _client, path, body: post(path, body)):
        yield found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ids.txt"


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (b"17", [17]),
        (b"17\n18\n", [17, 18]),
        (b"\xef\xbb\xbf17\r\n\r\n  18\t\r\n", [17, 18]),
        (b"# of the disk\n17 # the first\n\n#18\n19#", [17, 19]),
        (b"3\n1\n3\n2\n1\n", [3, 1, 2]),
        (b"%d\n" % HIGHEST, [HIGHEST]),
    ],
)
def test_a_file_has_one_id_on_each_line_and_comments(file: Path, text: bytes, ids: list[int]) -> None:
    file.write_bytes(text)
    assert ids_of(file) == ids


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"17\n\n# x\nusers\n", "line 4: 'users' is no id of a region"),
        (b"17 18\n", "line 1: '17 18' is no id of a region"),
        (b"1\n-2\n", "line 2: '-2' is no id of a region"),
        (b"0\n", "line 1: '0' is no id of a region"),
        (b"017\n", "line 1: '017' is no id of a region"),
        ("\u0661\n".encode(), "line 1: '\u0661' is no id of a region"),
        (b"1,000\n", "line 1: '1,000' is no id of a region"),
        (b"%d\n" % (HIGHEST + 1), f"line 1: '{HIGHEST + 1}' is no id of a region"),
        (b"x" * 41, f"line 1: '{'x' * 40}'... is no id of a region"),
        (b"\x1b[2J", "line 1: '\\x1b[2J' is no id of a region"),
        (b"# nothing\n\n", "has no id"),
        (b"a\xff", "cannot be read"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_sent(
    file: Path, posted: list[tuple[str, Any]], text: bytes, said: str
) -> None:
    file.write_bytes(text)
    with pytest.raises(Failure) as found:
        ids_of(file)
    assert found.value.code is Exit.USAGE
    assert str(file) in found.value.message
    assert said in found.value.message
    for act in ("assign", "unassign"):
        assert "ids.txt" in unwrapped(regent("regions", act, "--file", file, code=Exit.USAGE).stderr)
    assert not posted


def test_a_file_has_a_bounded_number_of_ids_and_of_bytes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("\n".join(map(str, [*range(1, choosing.IDS_MAX + 1), 1])))
    assert len(ids_of(file)) == choosing.IDS_MAX
    file.write_text("\n".join(map(str, range(1, choosing.IDS_MAX + 2))))
    with pytest.raises(Failure, match=r"line 10001: more than 10,000 ids"):
        ids_of(file)
    file.write_bytes(b"17" + b"#" * (region_files.FILE_BYTES_MAX - 2))
    assert ids_of(file) == [17]
    file.write_bytes(b"17" + b"#" * (region_files.FILE_BYTES_MAX - 1))
    with pytest.raises(Failure, match=r"more than 1,000,000 bytes"):
        ids_of(file)
    with pytest.raises(Failure, match="cannot be read"):
        ids_of(file.parent)
    help_of = " ".join(regent("regions", "assign", "--help").stdout.split())
    assert f"at most {choosing.IDS_MAX:,}" in help_of


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a file without an end")
def test_a_file_without_an_end_is_read_up_to_the_bound() -> None:
    with pytest.raises(Failure, match=r"more than 1,000,000 bytes"):
        ids_of(Path("/dev/zero"))


@pytest.mark.parametrize("act", ["assign", "unassign"])
def test_ids_go_in_one_request_from_a_file_or_from_standard_input(
    file: Path, posted: list[tuple[str, Any]], act: str
) -> None:
    file.write_text("17\n18\n")
    yes = ("--yes",) if act == "unassign" else ()
    regent("regions", act, "--file", file, "--reason", "r", "--nonce", "n", *yes)
    regent("regions", act, "--file", "-", "--nonce", "n", "--dry-run", typed="18 # b\n17\n")
    assert posted == [
        (f"/v1/regions/{act}", {"regions": [17, 18], "reason": "r", "nonce": "n", "dryRun": False}),
        (f"/v1/regions/{act}", {"regions": [18, 17], "reason": "", "nonce": "n", "dryRun": True}),
    ]
    said = unwrapped(regent("regions", act, "--file", "-", code=Exit.USAGE, typed="x\n").stderr)
    assert "standard input, line 1: 'x' is no id of a region" in said


@pytest.mark.parametrize("act", ["assign", "unassign"])
def test_either_an_id_or_a_file_is_given(file: Path, posted: list[tuple[str, Any]], act: str) -> None:
    file.write_text("17\n")
    both = unwrapped(regent("regions", act, 17, "--file", file, code=Exit.USAGE).stderr)
    assert "an id and --file exclude each other" in both
    assert "neither an id nor --file is given" in unwrapped(regent("regions", act, code=Exit.USAGE).stderr)
    to = unwrapped(regent("regions", "assign", "--file", file, "--to", "kv-1", code=Exit.USAGE).stderr)
    assert "--to is for one region" in to
    assert not posted


def test_a_question_says_how_many_regions_are_closed(file: Path, posted: list[tuple[str, Any]]) -> None:
    file.write_text("\n".join(map(str, range(1, 1_235))))
    with mock.patch("cli.session.on_terminal", return_value=True):
        result = regent("regions", "unassign", "--file", file, code=Exit.REFUSED, typed="n\n")
        assert "Close 1,234 regions? No server serves their keys then." in unwrapped(result.stderr)
        result = regent("regions", "unassign", 17, code=Exit.REFUSED, typed="n\n")
        assert "Close region 17? No server serves its keys then." in unwrapped(result.stderr)
    assert not posted

"""The socket's file: a dead daemon's is replaced, a living one's and any other file stay."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controller.http.server import SocketTaken, listening

DIES_LISTENING = """
import os, sys
from pathlib import Path
from controller.http.server import listening
with listening(Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def test_the_file_of_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "regent.sock"
    subprocess.run([sys.executable, "-c", DIES_LISTENING, str(path)], check=False)
    assert path.exists()
    assert not connects(path)
    with listening(path):
        assert connects(path)
    assert not path.exists()


def test_a_living_daemon_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "regent.sock"
    with listening(path):
        refuses(path, "another daemon")
        assert connects(path)


def test_a_socket_that_another_daemon_with_the_same_pid_is_about_to_rename_stays(tmp_path: Path) -> None:
    """Each of two containers numbers its processes from 1, and both may have the folder."""
    other = tmp_path / f".{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(other))
        with listening(tmp_path / "regent.sock"):
            assert other.exists()


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "regent.sock"
    path.write_text("mine")
    refuses(path, "not a socket")
    assert path.read_text() == "mine"


def refuses(path: Path, match: str) -> None:
    """Asserts that no daemon can listen, and that the remedy is named."""
    with pytest.raises(SocketTaken, match=match) as found, listening(path):
        raise AssertionError("listened")
    assert "http.socket" in str(found.value)


def test_a_folder_of_another_user_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "regent.sock"
    for refused, name in ((os, "open"), (os, "mkdir")):
        with monkeypatch.context() as patched:
            patched.setattr(refused, name, denied)
            refuses(path, r"no permission .* -o regent -g regent .*/run\)")
        path.parent.mkdir(exist_ok=True)
        path.parent.rmdir()


def denied(path: object, *_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_a_file_that_replaced_the_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "regent.sock"
    with listening(path):
        path.unlink()
        path.write_text("other")
    assert path.read_text() == "other"


def test_the_longest_path_that_settings_allow_can_be_bound() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / ("s" * (95 - len(folder)))
        assert len(str(path)) == 96
        with listening(path):
            assert connects(path)

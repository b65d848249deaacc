"""The socket's file: what is left of a dead daemon is no obstacle, what is not ours is left alone."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controller.http.unix_socket import SocketTaken, listening

DIES_LISTENING = """
import os, sys
from pathlib import Path
from controller.http.unix_socket import listening
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
        with pytest.raises(SocketTaken, match="another daemon"), listening(path):
            raise AssertionError("listened")
        assert connects(path)


def test_another_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "regent.sock"
    path.write_text("mine")
    with pytest.raises(SocketTaken, match="not a socket"), listening(path):
        raise AssertionError("listened")
    assert path.read_text() == "mine"


def test_a_folder_of_another_user_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run" / "regent.sock"
    for refused, name in ((os, "open"), (os, "mkdir")):
        with monkeypatch.context() as patched:
            patched.setattr(refused, name, denied)
            with (
                pytest.raises(SocketTaken, match=r"no permission .* -o regent -g regent .*/run\)") as found,
                listening(path),
            ):
                raise AssertionError("listened")
        assert "http.socket" in str(found.value)
        path.parent.mkdir(exist_ok=True)
        path.parent.rmdir()


def denied(path: object, *_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_what_replaced_our_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "regent.sock"
    with listening(path):
        path.unlink()
        path.write_text("other")
    assert path.read_text() == "other"


def test_the_longest_path_that_settings_allow_can_be_bound() -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / ("s" * (95 - len(folder)))
        assert len(str(path)) == 96
        with listening(path):
            assert connects(path)

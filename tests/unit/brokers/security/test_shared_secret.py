"""The secret that daemon and endpoint share: the first process creates it, and no other user may read it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from brokers.security.shared_secret import SECRET_BYTES, SecretUnusable, present_secret, secret_trouble, shared_secret


def test_the_secret_is_created_with_its_folder_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state" / "admin-secret"
    made = shared_secret(path)
    assert len(made) == SECRET_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    assert shared_secret(path) == made
    assert [found.name for found in path.parent.iterdir()] == ["admin-secret"]


def test_two_processes_that_start_together_have_the_same_secret(tmp_path: Path) -> None:
    path = tmp_path / "admin-secret"
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(shared_secret, path)
        assert shared_secret(path) == other.result()


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "admin-secret"
    shared_secret(path)
    path.chmod(0o640)
    with pytest.raises(SecretUnusable, match="chmod 600"):
        shared_secret(path)


@pytest.mark.parametrize("content", [b"", b"00ff", b"not hexadecimal" * 9, b"\xff" * 64, b"ab" * (SECRET_BYTES - 1)])
def test_a_file_without_a_secret_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "admin-secret"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(SecretUnusable, match="delete it"):
        shared_secret(path)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_created_is_reported_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SecretUnusable, match=r"admin\.secret_file"):
        shared_secret(tmp_path / "file" / "admin-secret")


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ROOT, DAEMON, MEMBER = 0, 12_345, 23_456


@AS_ROOT
def test_a_file_of_root_may_be_readable_by_a_group_as_systemd_passes_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("ab" * SECRET_BYTES)
    file.chmod(0o440)
    with pytest.raises(SecretUnusable):
        shared_secret(file)
    with mock.patch("os.geteuid", return_value=DAEMON):
        assert shared_secret(file) == b"\xab" * SECRET_BYTES
        file.chmod(0o444)
        with pytest.raises(SecretUnusable):
            shared_secret(file)


# -- trouble that another process reports before a daemon fails


def test_no_trouble_is_reported_where_there_is_no_file_yet_and_none_is_created(tmp_path: Path) -> None:
    file = tmp_path / "admin-secret"
    assert secret_trouble(file) is None
    assert not file.exists()
    assert present_secret(file) is None
    shared_secret(file)
    file.write_text("00ff")
    assert "does not hold 32 bytes" in (secret_trouble(file) or "")


@AS_ROOT
@pytest.mark.parametrize(
    ("owner", "mode", "folder", "user", "remedy"),
    [
        (ROOT, 0o600, ROOT, None, None),
        (ROOT, 0o640, ROOT, None, "chmod 600"),
        (ROOT, 0o602, ROOT, None, "chmod 600"),
        (ROOT, 0o600, DAEMON, None, "chown 12345"),
        (ROOT, 0o640, DAEMON, None, None),
        (ROOT, 0o644, DAEMON, None, "chmod 640"),
        (ROOT, 0o660, DAEMON, None, "chmod 640"),
        (DAEMON, 0o600, DAEMON, None, None),
        (DAEMON, 0o640, DAEMON, None, "chmod 600"),
        (MEMBER, 0o600, DAEMON, None, "chown 12345"),
        (ROOT, 0o640, ROOT, DAEMON, None),
        (ROOT, 0o600, ROOT, DAEMON, "chown 12345"),
        (DAEMON, 0o600, ROOT, DAEMON, None),
        (DAEMON, 0o600, ROOT, MEMBER, "chown 23456"),
    ],
)
def test_root_reports_the_trouble_that_the_daemon_will_have(
    owner: int, mode: int, folder: int, user: int | None, remedy: str | None, tmp_path: Path
) -> None:
    """Without a known user the owner of the folder counts as the daemon's user; reading as root proves nothing."""
    file = tmp_path / "admin-secret"
    shared_secret(file)
    file.chmod(mode)
    os.chown(file, owner, -1)
    os.chown(tmp_path, folder, -1)
    trouble = secret_trouble(file, user)
    assert trouble is None if remedy is None else f": {remedy} {file}" in (trouble or "")


@AS_ROOT
@pytest.mark.parametrize(
    ("owner", "mode", "remedy"),
    [
        (DAEMON, 0o600, None),
        (DAEMON, 0o602, "chmod 600"),
        (ROOT, 0o600, "chown 12345"),
        (DAEMON, 0o000, "give the file"),
    ],
)
def test_a_user_that_may_not_read_the_file_reports_only_trouble_of_the_daemon(
    owner: int, mode: int, remedy: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "admin-secret"
    shared_secret(file)
    file.chmod(mode)
    os.chown(file, owner, -1)
    os.chown(tmp_path, DAEMON, -1)
    refused = mock.patch("os.open", side_effect=PermissionError(13, "Permission denied"))
    with mock.patch("os.geteuid", return_value=MEMBER), refused:
        trouble = secret_trouble(file)
    assert trouble is None if remedy is None else remedy in (trouble or "")


@pytest.mark.parametrize("may_enter", [True, False])
def test_a_user_that_may_not_enter_the_folder_reports_no_trouble(may_enter: bool, tmp_path: Path) -> None:
    file = tmp_path / "admin-secret"
    shared_secret(file)
    refused = mock.patch("os.open", side_effect=PermissionError(13, "Permission denied"))
    with refused, mock.patch("os.access", return_value=may_enter):
        trouble = secret_trouble(file)
    assert ("cannot be read by this user (Permission denied)" in (trouble or "")) is may_enter

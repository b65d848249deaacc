"""The secret that daemon and endpoint share: made once, whoever comes first, and readable by nobody else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from brokers.security.shared_secret import SECRET_BYTES, SecretUnusable, secret_trouble, shared_secret


def test_it_is_made_with_its_folder_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state" / "admin-secret"
    made = shared_secret(path)
    assert len(made) == SECRET_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    assert shared_secret(path) == made
    assert [found.name for found in path.parent.iterdir()] == ["admin-secret"]


def test_two_that_start_together_have_the_same(tmp_path: Path) -> None:
    path = tmp_path / "admin-secret"
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(shared_secret, path)
        assert shared_secret(path) == other.result()


def test_what_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "admin-secret"
    shared_secret(path)
    path.chmod(0o640)
    with pytest.raises(SecretUnusable, match="chmod 600"):
        shared_secret(path)


@pytest.mark.parametrize("content", [b"", b"00ff", b"not hexadecimal" * 9, b"\xff" * 64])
def test_what_is_no_secret_is_refused_and_left(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "admin-secret"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(SecretUnusable, match="delete it"):
        shared_secret(path)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SecretUnusable, match=r"admin\.secret_file"):
        shared_secret(tmp_path / "file" / "admin-secret")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_systemd_hands_over_is_roots_and_shows_the_right_of_a_group(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("ab" * SECRET_BYTES)
    file.chmod(0o440)
    with pytest.raises(SecretUnusable):
        shared_secret(file)
    with mock.patch("os.geteuid", return_value=12_345):
        assert shared_secret(file) == b"\xab" * SECRET_BYTES
        file.chmod(0o444)
        with pytest.raises(SecretUnusable):
            shared_secret(file)


def test_trouble_with_it_is_told_before_a_daemon_meets_it(tmp_path: Path) -> None:
    file = tmp_path / "admin-secret"
    assert secret_trouble(file) is None, "whoever starts first makes it"
    assert not file.exists()
    shared_secret(file)
    assert secret_trouble(file) is None
    file.chmod(0o644)
    assert f"may be read or changed by others: chmod 600 {file}" in (secret_trouble(file) or "")
    file.chmod(0o600)
    file.write_text("00ff")
    assert "does not hold 32 bytes" in (secret_trouble(file) or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_roots_copy_in_the_daemons_folder_is_trouble_although_root_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "admin-secret"
    shared_secret(file)
    os.chown(tmp_path, 12_345, -1)
    assert f"chown 12345 {file}" in (secret_trouble(file) or "")
    os.chown(file, 12_345, -1)
    assert secret_trouble(file) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_gives_to_the_daemon_by_a_group_is_no_trouble_for_root_either(tmp_path: Path) -> None:
    file = tmp_path / "admin-secret"
    shared_secret(file)
    file.chmod(0o640)
    assert f"chmod 600 {file}" in (secret_trouble(file) or ""), "the daemon is root, too"
    os.chown(tmp_path, 12_345, -1)
    assert secret_trouble(file) is None
    with mock.patch("os.geteuid", return_value=12_345):
        assert len(shared_secret(file)) == SECRET_BYTES, "the daemon agrees"
    file.chmod(0o644)
    assert f"chmod 640 {file}" in (secret_trouble(file) or "")
    os.chown(tmp_path, 0, -1)
    file.chmod(0o640)
    assert secret_trouble(file, 12_345) is None, "in a folder of root's"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_member_of_the_daemons_group_is_told_nothing_of_what_its_user_alone_reads(tmp_path: Path) -> None:
    file = tmp_path / "admin-secret"
    shared_secret(file)
    os.chown(file, 12_345, -1)
    os.chown(tmp_path, 12_345, -1)
    member = mock.patch("os.geteuid", return_value=23_456)
    refused = mock.patch("os.open", side_effect=PermissionError(13, "Permission denied"))
    with member, refused:
        assert secret_trouble(file) is None
        file.chmod(0o602)
        assert f"chmod 600 {file}" in (secret_trouble(file) or "")
        file.chmod(0o600)
        os.chown(file, 0, -1)
        assert f"chown 12345 {file}" in (secret_trouble(file) or "")


@pytest.mark.parametrize(("open_folder", "told"), [(True, True), (False, False)])
def test_somebody_whom_the_folder_does_not_let_in_is_told_nothing(
    open_folder: bool, told: bool, tmp_path: Path
) -> None:
    file = tmp_path / "admin-secret"
    shared_secret(file)
    refused = mock.patch("os.open", side_effect=PermissionError(13, "Permission denied"))
    with refused, mock.patch("os.access", return_value=open_folder):
        trouble = secret_trouble(file)
    assert ("cannot be read by this user (Permission denied)" in (trouble or "")) == told

"""Secrets: the one that daemon and endpoint share, and SCRAM by the vectors of the RFCs."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.security.authentication import Authenticator
from brokers.security.scram import HASHES, ITERATIONS_MAX, ScramClient, ScramRefused, ScramServer, credential
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


NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = bytes.fromhex("5b6d99689d12358eec104b1212366fa0")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = "pencil", user: str = "user", mechanism: str = "SCRAM-SHA-256") -> ScramClient:
    return ScramClient(mechanism, user, password, NONCE)


def server(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> ScramServer:
    known = credential(mechanism, password, SALT)
    return ScramServer(mechanism, lambda _: known, SERVER_NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    ours, theirs = client(), server()
    assert ours.first() == FIRST
    assert credential("SCRAM-SHA-256", "pencil", SALT).salt == SALT
    assert ours.final(ANSWER) == FINAL
    ours.verify(SIGNED)
    answer = theirs.first(FIRST)
    assert answer.partition(b",s=")[0] == ANSWER.partition(b",s=")[0]
    assert theirs.final(client().final(answer) if ours.first() else b"")


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["kafka", "a,b=c", "=2C", "ключ"])
def test_both_sides_agree_on_every_kind_of_name(mechanism: str, user: str) -> None:
    ours, theirs = client("geheim, geheim", user, mechanism), server(mechanism, "geheim, geheim")
    ours.verify(theirs.final(ours.final(theirs.first(ours.first()))))
    assert theirs.user == user


@pytest.mark.parametrize("mechanism", HASHES)
def test_each_side_refuses_one_that_does_not_know_the_password(mechanism: str) -> None:
    ours, theirs = client("wrong", mechanism=mechanism), server(mechanism)
    final = ours.final(theirs.first(ours.first()))
    with pytest.raises(ScramRefused, match="wrong user name or password"):
        theirs.final(final)
    for message in (b"v=AAAA", b"e=other-error", b"x", b"v=" + b"!" * 9):
        with pytest.raises(ScramRefused):
            ours.verify(message)


@pytest.mark.parametrize(
    "message",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=" + NONCE.encode() + b",s=AAAA,i=4096",
        b"r=" + NONCE.encode() + b"x,s=AAAA,i=1",
        b"r=" + NONCE.encode() + f"x,s=AAAA,i={ITERATIONS_MAX + 1}".encode(),
        b"r=" + NONCE.encode() + b"x,s=AAAA,i=99999999999999999999",
        b"r=" + NONCE.encode() + b"x,s=?,i=4096",
        b"s=AAAA",
        b"\xff",
        b"r=" + b"x" * 5_000,
    ],
)
def test_a_client_refuses_a_server_that_violates_the_protocol(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        client().final(message)


@pytest.mark.parametrize(
    "message", [b"p=tls-unique,,n=user,r=x", b"n,a=other,n=user,r=x", b"n,,r=x,n=user", b"n", b"n,,n=user", b"\xff"]
)
def test_a_server_refuses_an_unsupported_first_message(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        server().first(message)


@given(st.binary(max_size=80), st.integers(0, 200))
def test_a_changed_final_message_is_refused(garbage: bytes, at: int) -> None:
    ours, theirs = client(), server()
    final = ours.final(theirs.first(ours.first()))
    changed = final[: at % len(final)] + garbage
    if changed != final:
        with pytest.raises(ScramRefused):
            theirs.final(changed)


def test_a_final_message_with_another_channel_binding_than_the_first_one_is_refused() -> None:
    """Its proof is right: somebody in between changed the first message."""
    ours, theirs = client(), server()
    first = theirs.first(b"y" + ours.first()[1:])
    with pytest.raises(ScramRefused, match="does not continue its first one"):
        theirs.final(ours.final(first))


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_stranger_does_not_find_out_the_users(mechanism: str) -> None:
    """Each name has a salt of its own, always the same, and the same number of iterations; no proof of it is right."""
    authenticator, salts = Authenticator(mechanism, {"kafka": "secret"}), set[bytes]()
    for name in ("kafka", "nobody", "somebody"):
        first = [authenticator.scram().first(f"n,,n={name},r=x".encode()).partition(b",s=")[2] for _ in range(3)]
        assert len(set(first)) == 1
        assert first[0].endswith(b",i=4096")
        salts.add(first[0])
        ours, theirs = client("wrong", name, mechanism), authenticator.scram()
        with pytest.raises(ScramRefused, match="wrong user name or password"):
            theirs.final(ours.final(theirs.first(ours.first())))
    assert len(salts) == 3


def test_plain_needs_a_known_user_that_acts_for_itself_and_its_password() -> None:
    assert Authenticator("PLAIN", {"a": "b"}).plain(b"a\0a\0b") == "a"
    assert Authenticator("PLAIN", {"a": "b"}).plain(b"\0a\0b") == "a"
    for wrong in (b"\0a\0", b"\0a\0c", b"\0x\0b", b"\0x\0", b"y\0a\0b", b"a", b"\0\xff\0b"):
        with pytest.raises(ScramRefused):
            Authenticator("PLAIN", {"a": "b"}).plain(wrong)

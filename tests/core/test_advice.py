"""What settings allow and security advises against: files of secrets, and passwords on the wire."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from configs.advice import advice, exposed
from configs.loading import load

MINIMAL = '[zookeeper]\nconnect = "zk:1"\n[listener]\nadvertised_host = "h"\n'


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_secret_that_its_user_and_group_read_is_fine(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.touch()
    file.chmod(mode)
    assert exposed(file, os.geteuid()) is None


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602, 0o601])
def test_a_secret_that_others_read_or_change_is_told(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.touch()
    file.chmod(mode)
    assert f"mode {mode:04o}): chmod 0640 {file}" in (exposed(file, os.geteuid()) or "")


def test_a_secret_of_somebody_else_is_told(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    found = exposed(file, os.geteuid() + 1)
    assert (found is None) == (os.geteuid() == 0), "root may own it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_secret_that_was_given_away_is_told(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    os.chown(file, 12_345, -1)
    assert "belongs to user 12345" in (exposed(file, 23_456) or "")
    assert f"chown 23456 {file}" in (exposed(file, 23_456) or ""), "its mode may be closed to all but its owner"
    assert exposed(file, 12_345) is None
    assert exposed(file, None) is None, "nobody knows whose daemon it is"


def test_a_secret_that_is_not_there_is_anothers_complaint(tmp_path: Path) -> None:
    assert exposed(tmp_path / "none", os.geteuid()) is None


def test_files_are_named_by_their_keys_and_a_certificate_that_holds_its_key_counts(tmp_path: Path) -> None:
    for name in ("sasl", "key", "certificate"):
        (tmp_path / name).write_text("user:password")
        (tmp_path / name).chmod(0o644)
    environ = {
        "REGENT_SECURITY__SASL_FILE": str(tmp_path / "sasl"),
        "REGENT_SECURITY__CERTIFICATE_FILE": str(tmp_path / "certificate"),
        "REGENT_ADMIN__CERTIFICATE_FILE": str(tmp_path / "certificate"),
        "REGENT_ADMIN__KEY_FILE": str(tmp_path / "key"),
    }
    file = tmp_path / "regent.toml"
    file.write_text(MINIMAL)
    found = [sentence.partition(" = ")[0] for sentence in advice(load(file, environ).settings)]
    assert set(found) == {"admin.key_file", "security.sasl_file", "security.certificate_file"}
    assert advice(load(file, {}).settings) == []


SET_ACL = {"REGENT_ZOOKEEPER__SET_ACL": "true"}
DAEMONS = SET_ACL | {"REGENT_ZOOKEEPER__SASL": "kafka:secret"}


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (DAEMONS, True),
        (DAEMONS | {"REGENT_ADMIN__ZOOKEEPER_SASL": "announcer:secret"}, False),
        (DAEMONS | {"CREDENTIALS_DIRECTORY": "{folder}"}, False),
        (DAEMONS | {"REGENT_ZOOKEEPER__SET_ACL": "false"}, False),
        (SET_ACL | {"REGENT_ZOOKEEPER__CERTIFICATE_FILE": "{folder}/certificate.pem"}, False),
    ],
    ids=["none", "named", "handed over by systemd", "open to everybody", "a certificate, which both read"],
)
def test_an_endpoint_that_could_not_start_in_its_unit_is_told(
    tmp_path: Path, environ: dict[str, str], told: bool
) -> None:
    file = tmp_path / "regent.toml"
    file.write_text(MINIMAL)
    (tmp_path / "admin-zookeeper-digest").write_text("announcer:secret")
    given = {name: value.format(folder=tmp_path) for name, value in environ.items()} | {"REGENT_ZOOKEEPER__TLS": "true"}
    found = [sentence for sentence in advice(load(file, given).settings) if sentence.startswith("zookeeper.set_acl")]
    assert bool(found) == told
    for named in ("admin.zookeeper_digest_file", "admin.zookeeper_sasl_file", "/etc/credstore/admin-zookeeper-digest"):
        assert all(named in sentence for sentence in found)


def test_a_digest_without_tls_is_told(tmp_path: Path) -> None:
    file = tmp_path / "regent.toml"
    file.write_text(MINIMAL)
    environ = {"REGENT_ZOOKEEPER__DIGEST": "regent:secret"}
    [found] = advice(load(file, environ).settings)
    assert "zookeeper.tls is false" in found
    assert "secret" not in found.replace("secrets", "")
    assert advice(load(file, environ | {"REGENT_ZOOKEEPER__TLS": "true"}).settings) == []


def test_the_digest_is_named_by_the_key_that_was_set(tmp_path: Path) -> None:
    file, digest = tmp_path / "regent.toml", tmp_path / "digest"
    file.write_text(MINIMAL)
    digest.write_text("regent:secret")
    digest.chmod(0o600)
    own = {"REGENT_ADMIN__ZOOKEEPER_DIGEST": "endpoint:secret"}
    [found] = advice(load(file, {"REGENT_ZOOKEEPER__DIGEST_FILE": str(digest)} | own).settings)
    assert found.startswith(
        "the digest of zookeeper.digest_file and admin.zookeeper_digest goes to ZooKeeper in plain text"
    )
    [found] = advice(load(file, {"REGENT_ZOOKEEPER__DIGEST": "regent:secret"}).settings)
    assert found.startswith("the digest of zookeeper.digest goes")

"""Settings that are allowed but insecure: exposed files of secrets, and passwords on the wire."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from configs.advice import SECRETS, advice, exposed
from configs.loading import load
from tests.kit.settings_kit import MINIMAL, written

DAEMONS = {"REGENT_ZOOKEEPER__SET_ACL": "true", "REGENT_ZOOKEEPER__SASL": "kafka:secret"}
DIGEST = {"REGENT_ZOOKEEPER__DIGEST": "regent:secret"}


def advised(folder: Path, environ: dict[str, str]) -> list[str]:
    """Loads the settings of ``environ`` and returns the advice about them."""
    return advice(load(written(folder, MINIMAL), environ).settings)


def secret(path: Path, mode: int = 0o600) -> Path:
    """Writes a file with a password."""
    path.write_text("user:password")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_secret_that_its_user_and_group_read_is_not_exposed(tmp_path: Path, mode: int) -> None:
    assert exposed(secret(tmp_path / "secret", mode), os.geteuid()) is None


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602, 0o601])
def test_a_secret_that_others_read_or_change_is_exposed(tmp_path: Path, mode: int) -> None:
    file = secret(tmp_path / "secret", mode)
    for user in (os.geteuid(), None):
        assert f"mode {mode:04o}): chmod 0640 {file}" in (exposed(file, user) or "")


def test_a_secret_of_another_user_is_exposed_unless_that_is_root(tmp_path: Path) -> None:
    found = exposed(secret(tmp_path / "secret"), os.geteuid() + 1)
    assert (found is None) == (os.geteuid() == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_secret_that_was_given_away_is_exposed(tmp_path: Path) -> None:
    file = secret(tmp_path / "secret")
    os.chown(file, 12_345, -1)
    found = exposed(file, 23_456) or ""
    assert "belongs to user 12345" in found, "its mode may be closed to all but its owner"
    assert f"chown 23456 {file}" in found
    assert exposed(file, 12_345) is None
    assert exposed(file, None) is None, "the daemon's user is unknown"


def test_a_secret_that_is_missing_is_not_exposed(tmp_path: Path) -> None:
    assert exposed(tmp_path / "none", os.geteuid()) is None


@pytest.mark.parametrize("name", SECRETS)
def test_every_file_of_secrets_is_checked_and_named_by_its_key(tmp_path: Path, name: str) -> None:
    environ = {f"REGENT_{name.replace('.', '__')}".upper(): str(secret(tmp_path / "secret", 0o644))}
    if name == "regions.clients_secret_file":
        environ["REGENT_REGIONS__SECRET_FILE"] = str(secret(tmp_path / "of-servers"))
    found = [sentence for sentence in advised(tmp_path, environ) if "may be read or changed" in sentence]
    assert [sentence.partition(" = ")[0] for sentence in found] == [name]
    secret(tmp_path / "secret")
    assert not [sentence for sentence in advised(tmp_path, environ) if "may be read or changed" in sentence]


@pytest.mark.parametrize("section", ["zookeeper", "security", "admin", "http"])
def test_a_certificate_counts_as_a_secret_where_it_holds_the_key(tmp_path: Path, section: str) -> None:
    certificate = secret(tmp_path / "certificate", 0o644)
    environ = {f"REGENT_{section}__CERTIFICATE_FILE".upper(): str(certificate)}
    [found] = advised(tmp_path, environ)
    assert found.startswith(f"{section}.certificate_file = ")
    assert advised(tmp_path, environ | {f"REGENT_{section}__KEY_FILE".upper(): str(secret(tmp_path / "key"))}) == []


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        (DAEMONS, True),
        (DAEMONS | {"REGENT_ADMIN__ZOOKEEPER_SASL": "announcer:secret"}, False),
        (DAEMONS | {"REGENT_ADMIN__ZOOKEEPER_DIGEST": "announcer:secret"}, False),
        (DAEMONS | {"CREDENTIALS_DIRECTORY": "{folder}"}, False),
        (DAEMONS | {"REGENT_ZOOKEEPER__SET_ACL": "false"}, False),
        (DIGEST | {"REGENT_ZOOKEEPER__SET_ACL": "true"}, True),
        (
            {"REGENT_ZOOKEEPER__SET_ACL": "true", "REGENT_ZOOKEEPER__CERTIFICATE_FILE": "{folder}/certificate.pem"},
            False,
        ),
    ],
    ids=["none", "SASL", "digest", "passed by systemd", "open znodes", "digest alone", "a certificate that both read"],
)
def test_an_endpoint_that_could_not_start_in_its_unit_is_advised_against(
    tmp_path: Path, environ: dict[str, str], wanted: bool
) -> None:
    secret(tmp_path / "admin-zookeeper-digest")
    given = {name: value.format(folder=tmp_path) for name, value in environ.items()} | {"REGENT_ZOOKEEPER__TLS": "true"}
    found = [sentence for sentence in advised(tmp_path, given) if sentence.startswith("zookeeper.set_acl")]
    assert bool(found) == wanted
    for named in ("admin.zookeeper_digest_file", "admin.zookeeper_sasl_file", "/etc/credstore/admin-zookeeper-digest"):
        assert all(named in sentence for sentence in found)


def test_a_digest_without_tls_is_advised_against_by_the_key_that_was_set(tmp_path: Path) -> None:
    [found] = advised(tmp_path, DIGEST)
    assert found.startswith(
        "the digest of zookeeper.digest goes to ZooKeeper in plain text, and zookeeper.tls is false"
    )
    assert "regent:secret" not in found
    assert advised(tmp_path, DIGEST | {"REGENT_ZOOKEEPER__TLS": "true"}) == []
    files = {"REGENT_ZOOKEEPER__DIGEST_FILE": str(secret(tmp_path / "digest"))}
    [found] = advised(tmp_path, files | {"REGENT_ADMIN__ZOOKEEPER_DIGEST": "endpoint:secret"})
    assert found.startswith("the digest of zookeeper.digest_file and admin.zookeeper_digest goes to ZooKeeper")

"""Credentials at ZooKeeper from files, the environment and systemd; settings that are allowed but insecure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from configs.advice import SECRETS, advice, exposed
from configs.connections import ZooKeeperSettings
from configs.credentials import systemd_credential
from configs.loading import load
from configs.problems import ConfigError
from tests.kit.command import MINIMAL, closed, problems, written

HOLD = {"REGENT_CONTROLLER__ON_ABSENCE": "hold"}
SET_ACL = {"REGENT_ZOOKEEPER__SET_ACL": "true"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Writes a settings file without credentials."""
    return written(tmp_path, MINIMAL)


def held(zookeeper: ZooKeeperSettings) -> tuple[str | None, str | None]:
    """Returns the digest and the SASL credentials in plain text."""
    digest, sasl = zookeeper.digest, zookeeper.sasl
    return digest.get_secret_value() if digest else None, sasl.get_secret_value() if sasl else None


@pytest.mark.parametrize("key", ["digest", "sasl"])
def test_a_credential_comes_from_the_named_file_and_is_never_shown(tmp_path: Path, file: Path, key: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("regent:s3cret\n")
    loaded = load(file, {f"REGENT_ZOOKEEPER__{key.upper()}_FILE": str(secret)})
    assert getattr(loaded.settings.zookeeper, key).get_secret_value() == "regent:s3cret"
    assert loaded.origins[f"zookeeper.{key}"] == f"file {secret}"
    assert "s3cret" not in repr(loaded) + str(loaded.settings)


def test_credentials_come_from_systemd_where_no_key_names_them(tmp_path: Path, file: Path) -> None:
    for key in ("digest", "sasl"):
        (tmp_path / f"zookeeper-{key}").write_text(f"{key}:s3cret")
    given = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    found = load(file, given | HOLD | SET_ACL).settings
    assert held(found.zookeeper) == ("digest:s3cret", "sasl:s3cret"), "they satisfy the keys that need credentials"
    named = load(file, given | {"REGENT_ZOOKEEPER__DIGEST": "own:s3cret"}).settings.zookeeper
    assert held(named) == ("own:s3cret", "sasl:s3cret")
    assert held(load(file, {"CREDENTIALS_DIRECTORY": "/nowhere"}).settings.zookeeper) == (None, None)


@pytest.mark.parametrize("inline", ["regent:s3cret", "s3cret"])
def test_credentials_are_refused_in_the_settings_file(tmp_path: Path, inline: str) -> None:
    found = problems(tmp_path, f'[zookeeper]\nconnect = "zk"\ndigest = "{inline}"\n')
    assert "zookeeper.digest_file" in found["zookeeper.digest"].remedy
    assert "s3cret" not in str(found["zookeeper.digest"])


@pytest.mark.parametrize("content", ["no colon", "user:", ":password", "a:b\nc:d", None])
def test_an_unusable_credentials_file_is_named(tmp_path: Path, content: str | None) -> None:
    secret = tmp_path / "digest"
    if content is not None:
        secret.write_text(content)
    found = problems(tmp_path, MINIMAL, {"REGENT_ZOOKEEPER__DIGEST_FILE": str(secret)})
    assert "user:password" in found["zookeeper.digest_file"].remedy


def test_wrong_credentials_in_the_environment_are_not_repeated(tmp_path: Path) -> None:
    found = problems(tmp_path, MINIMAL, {"REGENT_ZOOKEEPER__DIGEST": "s3cret"})
    assert "s3cret" not in str(found["zookeeper.digest"])


def test_credentials_that_are_set_twice_are_refused(tmp_path: Path) -> None:
    environ = {"REGENT_ZOOKEEPER__DIGEST": "a:b", "REGENT_ZOOKEEPER__DIGEST_FILE": "/etc/x"}
    assert "remove one" in problems(tmp_path, MINIMAL, environ)["zookeeper.digest_file"].remedy


@pytest.mark.parametrize(("name", "needs"), [("zookeeper-digest", HOLD), ("zookeeper-sasl", SET_ACL)])
def test_a_command_by_hand_reads_the_credentials_that_systemd_would_pass(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, name: str, needs: dict[str, str]
) -> None:
    store = tmp_path / "credstore"
    monkeypatch.setattr("configs.credentials.STORE", store)
    with pytest.raises(ConfigError, match=f"into /etc/credstore/{name} .*reads it there as root"):
        load(file, needs)
    store.mkdir()
    (store / name).write_text("regent:s3cret")
    assert load(file, needs).origins[name.replace("-", ".")] == f"file {store / name}"
    with pytest.raises(ConfigError, match="/etc/credstore"):
        load(file, needs | {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    with closed(store):
        assert systemd_credential(name, {}) is None, "only root may read the store"


# -- the admin endpoint


def test_an_endpoint_with_its_own_identity_reads_no_credential_of_the_daemon(tmp_path: Path, file: Path) -> None:
    (tmp_path / "own").write_text("announcer:s3cret")
    environ = HOLD | {
        "REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ZOOKEEPER__SASL_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ADMIN__ZOOKEEPER_DIGEST_FILE": str(tmp_path / "own"),
    }
    with pytest.raises(ConfigError, match=r"cannot be read"):
        load(file, environ)
    found = load(file, environ, endpoint=True).settings
    assert held(found.zookeeper) == ("announcer:s3cret", None)
    assert found.controller.on_absence == "brokers", "the digest that locks brokers out is the daemon's"


@pytest.mark.parametrize("given", ["", "SASL_FILE", "DIGEST_FILE"])
def test_an_endpoint_without_any_identity_is_refused_with_the_remedy(tmp_path: Path, file: Path, given: str) -> None:
    """In its unit the endpoint knows at most the path of the daemon's password."""
    environ = SET_ACL | {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    if given:
        environ[f"REGENT_ZOOKEEPER__{given}"] = str(tmp_path / "not-for-the-endpoint")
    [problem] = problems(tmp_path, MINIMAL, environ, endpoint=True).values()
    assert (problem.key, problem.origin) == ("zookeeper.set_acl", "environment REGENT_ZOOKEEPER__SET_ACL")
    assert "the admin endpoint has no identity of its own at ZooKeeper" in problem.reason
    assert (f"zookeeper.{given.lower()} " if given else "the daemon's is not set") in problem.reason
    for named in ("admin.zookeeper_digest_file", "admin.zookeeper_sasl_file"):
        assert named in problem.reason
    for named in ("/etc/credstore/admin-zookeeper-digest", "admin-zookeeper-sasl", "restart regent.service"):
        assert named in problem.remedy
    (tmp_path / "admin-zookeeper-digest").write_text("announcer:s3cret")
    found = load(file, environ, endpoint=True).settings.zookeeper
    assert held(found) == ("announcer:s3cret", None), "the remedy works"


def test_an_unreadable_identity_of_the_endpoint_is_named(tmp_path: Path, file: Path) -> None:
    environ = SET_ACL | {
        "REGENT_ZOOKEEPER__SASL_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ADMIN__ZOOKEEPER_SASL_FILE": str(tmp_path / "gone"),
    }
    with pytest.raises(ConfigError, match=r"admin.zookeeper_sasl_file = .*gone.* cannot be read"):
        load(file, environ, endpoint=True)


def test_an_endpoint_as_the_daemons_child_has_the_daemons_identity(tmp_path: Path, file: Path) -> None:
    (tmp_path / "sasl").write_text("kafka:s3cret")
    (tmp_path / "digest").write_text("kafka:s3cret")
    environ = SET_ACL | {"REGENT_ZOOKEEPER__SASL_FILE": str(tmp_path / "sasl")}
    assert held(load(file, environ, endpoint=True).settings.zookeeper) == (None, "kafka:s3cret")
    environ = SET_ACL | {"REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "digest")}
    assert held(load(file, environ, endpoint=True).settings.zookeeper) == ("kafka:s3cret", None)
    environ = SET_ACL | {"REGENT_ZOOKEEPER__CERTIFICATE_FILE": str(tmp_path / "own.pem")}
    assert held(load(file, environ, endpoint=True).settings.zookeeper) == (None, None), "the certificate is enough"


def test_an_endpoint_takes_the_credentials_that_systemd_passes(tmp_path: Path, file: Path) -> None:
    (tmp_path / "admin-zookeeper-digest").write_text("announcer:s3cret")
    (tmp_path / "admin-secret").write_text("00")
    systemd = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    environ = systemd | {
        "REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ADMIN__SECRET_FILE": "/var/lib/regent/admin-secret",
    }
    found = load(file, environ, endpoint=True).settings
    assert found.secret_file == tmp_path / "admin-secret", "its user may not open the daemon's own file"
    assert held(found.zookeeper) == ("announcer:s3cret", None)
    assert load(file, systemd, endpoint=True).settings.secret_file == tmp_path / "admin-secret"
    assert load(file, systemd).settings.secret_file == Path("/var/lib/regent/admin-secret")


def test_an_endpoint_does_not_read_the_digest_that_locks_brokers_out(tmp_path: Path, file: Path) -> None:
    environ = HOLD | {"REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "not-for-the-endpoint")}
    assert load(file, environ, endpoint=True).settings.zookeeper.digest is None


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

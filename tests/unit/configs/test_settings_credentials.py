"""Credentials at ZooKeeper: from files, the environment and systemd, for the daemon and for the admin endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from configs.credentials import systemd_credential
from configs.loading import load
from configs.problems import ConfigError
from configs.zookeeper_section import ZooKeeperSettings
from tests.kit.settings_kit import MINIMAL, closed, problems, written

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

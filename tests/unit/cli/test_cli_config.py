"""``regent config``: checks of settings and of every file that they name, the origin of values, the example."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from tests.kit.command import items, regent, unwrapped

SETTINGS = '[zookeeper]\nconnect = "zk:2181"\n[listener]\nadvertised_host = "127.0.0.1"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes sound settings, whose state folder does not exist yet."""
    path = tmp_path / "regent.toml"
    path.write_text(f'{SETTINGS}[state]\ndirectory = "{tmp_path}/state"\n')
    monkeypatch.setenv("REGENT_CONFIG", str(path))
    return path


def extend(file: Path, text: str) -> None:
    """Adds sections to the settings."""
    file.write_text(f"{file.read_text()}{text}\n")


def check(code: Exit = Exit.DONE) -> str:
    """Checks the settings and returns the messages."""
    return unwrapped(regent("config", "check", code=code).stderr)


def secret(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_config_check_of_sound_settings_names_the_file(file: Path) -> None:
    assert regent("config", "check").stdout == ""
    assert str(file) in check()


def test_config_check_names_every_problem(file: Path) -> None:
    file.write_text("[controller]\nid = 5\n[log]\nlevel = 3\n")
    found = check(Exit.USAGE)
    assert "4 problem(s)" in found
    for key in ("zookeeper.connect", "listener.advertised_host", "controller.id", "log.level"):
        assert key in found


def test_config_check_warns_of_an_endpoint_that_could_not_start_in_its_unit(file: Path, tmp_path: Path) -> None:
    sasl = secret(tmp_path / "sasl", "kafka:secret\n")
    file.write_text(file.read_text().replace("[zookeeper]", f'[zookeeper]\nset_acl = true\nsasl_file = "{sasl}"'))
    assert "warning: zookeeper.set_acl" in check()
    assert "/etc/credstore/admin-zookeeper-digest" in check()
    sasl.unlink()
    refused = unwrapped(regent("admin-endpoint", code=Exit.USAGE).stderr)
    assert "the admin endpoint has no identity of its own" in refused


def test_config_check_reads_every_certificate(file: Path, tmp_path: Path) -> None:
    garbage = secret(tmp_path / "garbage.pem", "no certificate")
    sound = file.read_text()
    extend(file, f'[security]\nprotocol = "SSL"\ncertificate_file = "{tmp_path}/none.pem"\nca_file = "{garbage}"')
    found = check(Exit.USAGE)
    assert "1 problem(s) with files" in found
    assert f"security.certificate_file = {tmp_path}/none.pem: there is no such file" in found
    file.write_text(sound.replace("[listener]", f'tls = true\nca_file = "{garbage}"\n[listener]'))
    assert "[zookeeper]:" in check(Exit.USAGE)


def test_config_check_reads_the_token_of_the_http_address(file: Path, tmp_path: Path) -> None:
    token = secret(tmp_path / "token", "0123456789abcdef\n", 0o644)
    extend(file, f'[http]\naddress = "127.0.0.1:0"\ntoken_file = "{token}"')
    assert "may be read or changed by others" in check(Exit.USAGE)
    token.chmod(0o600)
    check()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_config_check_by_root_takes_the_owner_of_the_state_folder_as_the_daemons_user(
    file: Path, tmp_path: Path
) -> None:
    token, state = secret(tmp_path / "token", "0123456789abcdef\n"), tmp_path / "state"
    os.chown(token, 12_345, 12_345)
    extend(file, f'[http]\naddress = "127.0.0.1:0"\ntoken_file = "{token}"')
    assert "warning" not in check(), "before the first start the daemon's user is unknown"
    state.mkdir()
    assert f"chown 0 {token}" in check(Exit.USAGE)
    os.chown(state, 12_345, -1)
    assert "warning" not in check()
    os.chown(state, 23_456, -1)
    assert f"chown 23456 {token}" in check(Exit.USAGE)


def test_config_check_reads_the_daemons_secret(file: Path, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    check()
    assert not (tmp_path / "state" / "admin-secret").exists(), "the daemon makes it"
    found = secret(tmp_path / "state" / "admin-secret", "ab" * 32, 0o644)
    assert f"[admin]: the secret {found} may be read or changed by others: chmod 600" in check(Exit.USAGE)
    found.chmod(0o600)
    check()


def test_config_show_names_the_origin_of_each_value(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENT_ZOOKEEPER__DIGEST", "regent:s3cret")
    rows = {item["key"]: item for item in items("config", "show")}
    assert rows["zookeeper.connect"] == {"key": "zookeeper.connect", "value": '"zk:2181"', "origin": str(file)}
    assert rows["zookeeper.digest"]["origin"] == "environment REGENT_ZOOKEEPER__DIGEST"
    assert rows["http.socket"]["origin"] == "default"
    for form in ("json", "table"):
        assert "s3cret" not in regent("config", "show", "-o", form).output


def test_config_show_contains_values_that_no_key_sets(file: Path, tmp_path: Path) -> None:
    extend(file, f'[http]\nsocket = "{tmp_path}/none.sock"')
    values = {item["key"]: item["value"] for item in items("config", "show")}
    assert values["admin.secret_file"] == f'"{tmp_path}/state/admin-secret"'
    assert values["controller.ibp"] == values["controller.default_replication_factor"] == "as the brokers"
    extend(file, '[controller]\nibp = "3.5-IV2"')
    assert {item["key"]: item["value"] for item in items("config", "show")}["controller.ibp"] == '"3.5-IV2"'


def test_config_example_is_the_shipped_file() -> None:
    shipped = Path(__file__).parents[3] / "configs" / "example.toml"
    assert regent("config", "example").stdout == shipped.read_text()

"""``regent run`` as a process: with a wrong value in any section nothing starts, and the reader knows what to do."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from configs.settings import Settings

GOOD: dict[str, dict[str, str]] = {
    "zookeeper": {"connect": '"127.0.0.1:1/kafka"'},
    "listener": {"advertised_host": '"127.0.0.1"'},
}
WRONG = {
    "zookeeper": ("connect", '"zk1:99999"', "host:port,host:port/chroot"),
    "controller": ("id", "7", "far above every broker.id"),
    "listener": ("advertised_host", '"0.0.0.0"', "under which the brokers reach this machine"),
    "brokers": ("inter_broker_listener", '"IN TERNAL"', "inter.broker.listener.name"),
    "security": ("protocol", '"TLS"', "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    "http": ("socket", '"regent.sock"', "/run/regent/regent.sock"),
    "log": ("level", '"loud"', "debug, info, warning, error"),
    "admin": ("port", "70000", "a whole number from 0 to 65535"),
    "shadow": ("poll_s", "0", "a number from 0.1 to 3600"),
    "state": ("directory", '"relative"', "an absolute path that the daemon may write to"),
    "journal": ("fsync", '"always"', "group, never"),
}


def test_every_section_has_its_wrong_value() -> None:
    assert WRONG.keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("section", WRONG)
def test_run_ends_with_the_key_the_value_and_the_remedy(section: str, tmp_path: Path) -> None:
    key, value, remedy = WRONG[section]
    sections = {name: dict(keys) for name, keys in GOOD.items()}
    sections.setdefault(section, {})[key] = value
    file = tmp_path / "regent.toml"
    file.write_text(
        "\n".join(f"[{s}]\n" + "\n".join(f"{k} = {v}" for k, v in keys.items()) for s, keys in sections.items())
    )
    command = [sys.executable, "-m", "cli.main", "run", "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == Exit.USAGE, ended
    assert f"{section}.{key} = {value}" in ended.stderr
    assert remedy in " ".join(ended.stderr.split())
    assert "1 problem(s)" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["run", "admin-endpoint"])
def test_files_of_security_that_cannot_be_used_are_named_once(command: str, tmp_path: Path) -> None:
    file = tmp_path / "regent.toml"
    file.write_text(
        f'[zookeeper]\nconnect = "127.0.0.1:1"\n[listener]\nadvertised_host = "127.0.0.1"\nport = 0\n'
        f'[admin]\nport = 0\n[security]\nprotocol = "SASL_PLAINTEXT"\nsasl_file = "{tmp_path}/none"\n'
        f'[state]\ndirectory = "{tmp_path}/state"\n[log]\nformat = "console"\n'
    )
    line = [sys.executable, "-m", "cli.main", command, "--config", str(file)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == Exit.FAILED, ended
    assert ended.stderr.count(f"{tmp_path}/none cannot be read") == 1
    assert "Traceback" not in ended.stderr


def test_run_on_a_port_that_is_taken_says_so_once_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file = tmp_path / "regent.toml"
        file.write_text(
            f'[zookeeper]\nconnect = "127.0.0.1:1"\n[listener]\nhost = "127.0.0.1"\nport = {port}\n'
            f'advertised_host = "127.0.0.1"\n[http]\nsocket = "{tmp_path}/regent.sock"\n'
            f'[state]\ndirectory = "{tmp_path}/state"\n[log]\nformat = "console"\n'
        )
        command = [sys.executable, "-m", "cli.main", "run", "--config", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == Exit.FAILED, ended
    assert (
        f"cannot listen on 127.0.0.1:{port}: another process listens there. Remedy: stop that process" in ended.stderr
    )
    assert ended.stderr.count(str(port)) == 1, "the address is named once"
    assert "Errno" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_run_names_an_http_address_that_is_taken_and_a_token_that_others_read(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        for http, remedy in (
            ("", f"http.address {taken} cannot be listened on"),
            (f'token_file = "{token}"', "chmod 640"),
        ):
            file = tmp_path / "regent.toml"
            file.write_text(
                f'[zookeeper]\nconnect = "127.0.0.1:1"\n[listener]\nhost = "127.0.0.1"\nport = 0\n'
                f'advertised_host = "127.0.0.1"\n[http]\nsocket = "{tmp_path}/regent.sock"\n'
                f'address = "{taken}"\n{http}\n'
                f'[state]\ndirectory = "{tmp_path}/state"\n[log]\nformat = "console"\n[admin]\nbeside_daemon = false\n'
            )
            command = [sys.executable, "-m", "cli.main", "run", "--config", str(file)]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode == Exit.FAILED, ended
            assert remedy in ended.stderr
            assert "Traceback" not in ended.stderr

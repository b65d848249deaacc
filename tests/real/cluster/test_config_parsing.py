"""Configurations of topics that Kafka's controller can parse before an unclean election, and those that regent can."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from state_machines.admin_rules.topic_configs import TOPIC_CONFIGS, unparsable
from testing.embedded.java import find_java
from testing.embedded.jvm import java_command

SOURCE = Path(__file__).with_name("LogConfigs.java")
WORDS = "true TRUE false yes null none abc compact delete compact,delete compact, gzip GZIP producer CreateTime"
NUMBERS = (
    "-131072 -3 -2 -1 0 1 2 4 9 13 14 18 22 0.5 1.5 +5 1e3 0.5f 2147483648 9223372036854775807 9223372036854775808"
)
VERSIONS = "3.0 3.0-IV1 3.0-IV2 2.7-IV2 3.9.1 9.9 1.5 0.8.2 0.8.2-IV0 0.10.2-IV0 0.10 3.7-IV4 3.7-IV5 4.0-IV1 03.0"
LISTS = "* *,* 0:1 0:1,2:3 0:1, 0:-1 a:b"
VALUES = ["", " 7 ", " True ", "delete, compact", *f"{WORDS} {NUMBERS} {VERSIONS} {LISTS}".split(" ")]


@pytest.mark.seed("S4-82")
def test_a_value_is_parsed_where_kafkas_controller_parses_it() -> None:
    if not Path(find_java().path).resolve().with_name("javac").exists():
        pytest.skip("this Java has no compiler")
    entries = [(name, value) for name in [*TOPIC_CONFIGS, "no.such.key"] for value in VALUES]
    lines = "".join(f"{name}\t{value}\n" for name, value in entries)
    command = java_command([], str(SOURCE))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=120)
    by_kafka = dict(zip(entries, done.stdout.split(), strict=True))
    differ = [
        (name, value, by_kafka[name, value])
        for name, value in entries
        if (unparsable({name: value}) is None) != (by_kafka[name, value] == "true")
    ]
    assert differ == []

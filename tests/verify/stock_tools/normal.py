"""Removes from a tool's output what differs from run to run under the same controller."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tests.verify.stock_tools.steps import Line

RULES: Final = (
    ("Dates, in log lines and records of time", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "DATE"),
    ("Stack traces of the tools: the frames, not the message", r"(?m)^\s+(at |\.\.\. \d+ more).*\n?", ""),
    (
        "Warnings of the Java client's network layer, where a broker is away",
        r"(?m)^\[DATE\] WARN .*NetworkClient\)\n?",
        "",
    ),
    (
        "Times in what a tool says of a call that took too long",
        r"\b(deadlineMs=|nextAllowedTryMs=|timed out at )\d+",
        r"\1TIME",
    ),
    ("Which node was the controller, and did not answer in time", r"(?<=due to node )\w+(?= being)", "CONTROLLER"),
    ("The number of a client within its JVM", r"adminclient-\d+", "adminclient"),
    ("The blank before the first of a resource's ACLs, which come in any order", r"(?m)^ \t(?=\(principal)", "\t"),
    ("Ids of topics and of the cluster", r"(?<=TopicId: )\S+", "ID"),
    ("Which of a broker's log directories a replica is in", r"data-\d", "data"),
    ("Sizes of logs, and how far a copy lags", r'("(?:size|offsetLag)":)\d+', r"\1N"),
    ("Times of throttled copies and of coordinators", r"(?<=in )\d+ ms", "N ms"),
)
"""What it is about, a regular expression, and what stands in its place; applied in this order."""
PLACED: Final = (
    (r"Leader: \d+", "Leader: N"),
    (r"(Replicas|Isr): ([\d,]+)", lambda found: f"{found[1]}: {found[2].count(',') + 1} brokers"),
)
"""For lines about topics whose replicas the controller has placed, which begins at a random broker."""


def normal(text: str, names: Mapping[str, str], line: Line) -> tuple[str, ...]:
    """Returns the lines of an output, sorted; ``names`` replace addresses and folders of this cluster."""
    for found, name in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(found, name)
    for _, pattern, instead in RULES:
        text = re.sub(pattern, instead, text)
    if line.placed:
        for pattern, change in PLACED:
            text = re.sub(pattern, change, text)
    if "--generate" in line.text:
        text = _without_the_proposal(text)
    text = re.sub(r"(?<=Isr: )[\d,]+", lambda found: ",".join(sorted(found[0].split(","))), text)
    text = re.sub(r"(?<=for partitions ).+", lambda found: ", ".join(sorted(found[0].split(", "))), text)
    return tuple(sorted(line for one in text.splitlines() for line in _lines(one.rstrip())))


def _without_the_proposal(text: str) -> str:
    """Reduces the random proposal of the tool to its number of replicas."""
    known, heading, proposed = text.partition("Proposed partition reassignment configuration")
    count = re.compile(r'"replicas":\[([\d,]*)\]')
    return known + heading + count.sub(lambda found: f'"replicas":{found[1].count(",") + 1}', proposed)


def _lines(line: str) -> list[str]:
    """Returns one line per broker of kafka-log-dirs, its directories as one, since a broker chooses between them."""
    if '"logDirs"' not in line:
        return [line]
    told: dict[str, Any] = json.loads(re.sub(r":(N|DAEMON)\b", r':"\1"', line))
    for broker in told["brokers"]:
        directories = broker["logDirs"]
        broker["logDirs"] = {
            "count": len(directories),
            "errors": [one["error"] for one in directories],
            "partitions": sorted(map(json.dumps, (found for one in directories for found in one["partitions"]))),
        }
    return [json.dumps(broker) for broker in told["brokers"]]

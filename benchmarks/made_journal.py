"""Makes sound journals of any size for measures of the pipeline, as files of two daemons, a segment at a time.

Each partition loses its leader, which returns to the ISR and leads again. Two fifths of the rows are requests, as in
the journals of real clusters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

BROKERS: Final = 50
RACKS: Final = 5
"""The replicas of a partition are on brokers with numbers that follow each other, and so in racks apart."""
TERMS: Final = 10
OF_TOPIC: Final = 50
"""Partitions of a topic."""
SEGMENT_BYTES: Final = 64_000_000
BEGUN_US: Final = 1_760_000_000_000_000
TERM_US: Final = 3_600_000_000
EVERY: Final = 5
REQUESTS: Final = 2
"""Of ``EVERY`` rows so many are requests."""


def write(folder: Path, events: int, partitions: int, *, segment_bytes: int = SEGMENT_BYTES) -> list[str]:
    """Writes ``events`` rows, beside the first and last ones of each term; returns the folders of the daemons."""
    change = 0
    for epoch in range(1, TERMS + 1):
        path = folder / f"daemon-{epoch % 2 + 1}"
        path.mkdir(parents=True, exist_ok=True)
        begun, lines, size = 1, [], 0
        for seq, line in enumerate(_term(epoch, events // TERMS, partitions, change), 1):
            lines.append(line)
            size += len(line)
            if size >= segment_bytes:
                (path / f"{epoch:010d}-{begun:012d}.jsonl").write_text("".join(lines))
                begun, lines, size = seq + 1, [], 0
        change += events // TERMS - events // TERMS // EVERY * REQUESTS
        if lines:
            (path / f"{epoch:010d}-{begun:012d}.jsonl").write_text("".join(lines))
    return sorted(map(str, folder.iterdir()))


def _term(epoch: int, events: int, partitions: int, change: int) -> Iterator[str]:
    """Yields the lines of a term; ``change`` is the number of its first change of a partition."""
    bodies = [
        '"kind":"CTL_ELECTED"',
        *(
            f'"kind":"BROKER_UP","broker":{broker},"broker_epoch":{100 + broker},"rack":"r{broker % RACKS}"'
            for broker in range(BROKERS)
        ),
    ]
    for seq, body in enumerate(bodies, 1):
        yield _line(epoch, seq, body)
    for number in range(events):
        seq = number + BROKERS + 2
        if number % EVERY < REQUESTS and number < events // EVERY * EVERY:
            yield _line(epoch, seq, _request(epoch, seq, number))
        else:
            yield _line(epoch, seq, _change(change, partitions))
            change += 1
    yield _line(epoch, events + BROKERS + 2, '"kind":"CTL_RESIGNED"')


def _line(epoch: int, seq: int, body: str) -> str:
    mono_us = epoch * TERM_US + seq
    return (
        f'{{"v":1,"cluster":"made","ctl_id":{epoch % 2 + 1},"ctl_epoch":{epoch},"seq":{seq},'
        f'"ts_us":{BEGUN_US + mono_us},"mono_us":{mono_us},{body}}}\n'
    )


def _request(epoch: int, seq: int, number: int) -> str:
    sent = epoch * TERM_US + seq - 1
    broker, api = number % BROKERS, ("LEADER_AND_ISR", "UPDATE_METADATA")[number % EVERY]
    return (
        f'"kind":"RPC_BATCH","broker":{broker},"broker_epoch":{100 + broker},"api":"{api}",'
        f'"partitions":{number % 7 + 1},"t_sent":{sent},"t_acknowledged":{sent + 1}'
    )


def _change(change: int, partitions: int) -> str:
    """Makes the fields of a change: the leader dies, returns to the ISR, and leads again."""
    number, at = change % partitions, change // partitions
    a, b, c = ((number + i) % BROKERS for i in range(3))
    topic = number // OF_TOPIC
    epoch, step = at // 3 * 2, at % 3
    full, short, again = [a, b, c], [b, c], [b, c, a]
    fields: dict[str, Any] = {
        "kind": ("LEADER", "ISR", "LEADER")[step],
        "topic": f"topic-{topic}",
        "partition": number % OF_TOPIC,
        "topic_id": hashlib.sha256(str(topic).encode()).hexdigest()[:22],
        "from_state": "ONLINE",
        "to_state": "ONLINE",
        "leader0": (a, b, b)[step],
        "leader1": (b, b, a)[step],
        "leader_epoch0": epoch + (step > 0),
        "leader_epoch1": epoch + (1, 1, 2)[step],
        "pepoch0": at,
        "pepoch1": at + 1,
        "isr0": (full, short, again)[step],
        "isr1": (short, again, again)[step],
        "replicas": full,
        "reason": ("broker_failure", "isr_by_leader", "preferred")[step],
    }
    if step != 1:
        fields |= {"strategy": ("offline", "", "preferred")[step], "steps": [("leader lost", "", "preferred")[step]]}
    if step == 0:
        fields["states"] = ["OFFLINE", "ONLINE"]
    fields |= {"t_committed": change, "why": "broker 7 is gone"}
    return json.dumps(fields, separators=(",", ":"))[1:-1]

"""Declares the options of regent pipeline plan."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Export(StrEnum):
    """Form of the files."""

    REGENT = "regent"
    KAFKA = "kafka"


# -- cluster and loads

Snapshot = Annotated[
    Path | None, typer.Option("--snapshot", help="Snapshot of a daemon, or a folder of them: the newest counts.")
]
Assignment = Annotated[
    Path | None, typer.Option("--from-assignment", help="Instead: a file of kafka-reassign-partitions.")
]
Loads = Annotated[Path | None, typer.Option("--loads", help="Loads of partitions: CSV, JSON lines or Parquet.")]
LoadsBefore = Annotated[
    Path | None, typer.Option("--loads-before", help="An earlier file of 'regent loads': two of them give rates.")
]
Brokers = Annotated[
    Path | None, typer.Option("--brokers", help="Racks and capacities of brokers, CSV; may name new brokers.")
]
BrokerSets = Annotated[
    Path | None,
    typer.Option("--broker-sets", help="JSON list of sets: brokers that are for some topics alone."),
]
ClusterId = Annotated[str, typer.Option("--cluster-id", help="Id of the cluster, where the input does not have it.")]
Retire = Annotated[
    list[int] | None, typer.Option("--retire", min=0, help="A broker that all replicas leave; repeatable.")
]
ExcludeBroker = Annotated[
    list[int] | None,
    typer.Option("--exclude-broker", min=0, help="A broker that takes no further replica; repeatable."),
]
ExcludeTopic = Annotated[
    list[str] | None,
    typer.Option("--exclude-topic", help="A topic, or those of a pattern, that stay as they are; repeatable."),
]

# -- goals

Spread = Annotated[
    float, typer.Option("--spread", min=0.01, max=1, help="How far a broker may be from its share, as a share.")
]
ReplicasMax = Annotated[int, typer.Option("--replicas-max", min=1, help="Replicas of one broker.")]
DiskMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of a disk that may be full.")]
InMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the capacity for bytes in.")]
OutMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the capacity for bytes out.")]
CpuMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the CPU.")]

# -- searches

Seeds = Annotated[int, typer.Option("--seeds", min=1, max=64, help="Searches, of which the best counts.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="First seed: the same ones give the same plan.")]
Scenarios = Annotated[
    Path | None, typer.Option("--scenarios", help="JSON list of scenarios, which are compared; writes no plan.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Runs the searches as tasks of Spark: local[2], spark://host:7077, yarn, ..."),
]

# -- files

Out = Annotated[Path | None, typer.Option("--out", help="File of the plan; without it nothing is written.")]
Form = Annotated[
    Export, typer.Option("--export", help="kafka: files of kafka-reassign-partitions, each with its way back.")
]
Parts = Annotated[int, typer.Option("--parts", min=1, max=10_000, help="Number of files at least.")]

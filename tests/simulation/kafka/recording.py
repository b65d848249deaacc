"""``python -m tests.simulation.kafka.recording FOLDER --seeds N --first M``: plays seeds, leaves daemons' journals.

Files are as a daemon writes them, in a folder per seed and daemon; each seed is a cluster of its own name.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec

from state_machines.journal.events import Row
from tests.kit.simulation.seeds import in_child
from tests.simulation.kafka.generate import generate
from tests.simulation.kafka.world import play


def main() -> None:
    """Records the seeds; raises where a seed violates an invariant."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.kafka.recording", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        in_child(record, seed, chosen.folder)


def record(seed: int, folder: Path) -> None:
    """Records one seed; call it in a child."""
    rows: list[Row] = []
    violation = play(generate(seed), recorded=rows).violation
    if violation is not None:
        raise RuntimeError(f"seed {seed}: {violation}")
    cluster = f"seed-{seed}"
    for daemon in {row.ctl_id for row in rows}:
        written = [msgspec.structs.replace(row, cluster=cluster) for row in rows if row.ctl_id == daemon]
        write(folder / f"{cluster}-{daemon}", written)


def write(folder: Path, rows: Sequence[Row]) -> None:
    """Writes one file."""
    folder.mkdir(parents=True)
    file = folder / f"{rows[0].ctl_epoch:010d}-{rows[0].seq:012d}.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


if __name__ == "__main__":
    main()

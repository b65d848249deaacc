"""Runs the story under regent and under Kafka's own controller in turn and prints the stalls side by side.

``python -m benchmarks.stalls --runs 5 --ibp 3.9-IV0 --ibp 2.7-IV1``; figures go to ``build/stalls.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import statistics
import sys
from pathlib import Path

from benchmarks.stall_story import Run, play

IBPS = ("3.9-IV0", "2.7-IV1")
MARGIN_S = 0.5
"""Largest factor of a median stall over Kafka's own."""


async def compare(ibp: str, runs: int, *, role_only: bool) -> list[Run]:
    """Plays runs of both in turn, regent first."""
    done: list[Run] = []
    for number in range(runs):
        for controller in ("regent", "kafka"):
            run = await play(controller, ibp, role_only=role_only)
            done.append(run)
            print(
                f"{ibp} run {number + 1} under {controller}: {run.verdict}; "
                f"{'sound' if run.sound else f'NOT SOUND {run.shutdowns} verify={run.clean}'}",
                flush=True,
            )
    return done


def table(runs: list[Run]) -> str:
    """Returns medians (and ranges) per step, one line each."""
    stalls: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for step in run.steps:
            stalls.setdefault(step.name, {}).setdefault(run.controller, []).append(step.stall_s)
    lines = [
        "| step | regent: longest stall, s | Kafka's own controller | within Kafka's + 0.5 s |",
        "|---|---|---|---|",
    ]
    for name, by in stalls.items():
        ours, theirs = by.get("regent", []), by.get("kafka", [])
        good = (
            "-"
            if not (ours and theirs)
            else ("yes" if statistics.median(ours) <= statistics.median(theirs) + MARGIN_S else "NO")
        )
        lines.append(f"| {name} | {_shown(ours)} | {_shown(theirs)} | {good} |")
    return "\n".join(lines)


def _shown(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> int:
    """Exits with 0 when every run was sound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--ibp", action="append", choices=IBPS)
    parser.add_argument("--role-only", action="store_true", help="only take-over and hand-back")
    chosen = parser.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    everything: list[Run] = []
    for ibp in chosen.ibp or IBPS:
        runs = asyncio.run(compare(ibp, chosen.runs, role_only=chosen.role_only))
        print(f"\nIBP {ibp}, {chosen.runs} runs each\n\n{table(runs)}\n", flush=True)
        everything += runs
    Path("build").mkdir(exist_ok=True)
    Path("build/stalls.json").write_text(json.dumps([dataclasses.asdict(r) for r in everything], indent=1, default=str))
    return 0 if all(run.sound for run in everything) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Plans one input by Cruise Control's own goals and by this planner: ``python -m benchmarks.cruise_control_beside``.

It needs Java 17, a clone of Cruise Control whose classes are compiled, and the jars that these need:

    javac -proc:none -d CLASSES -cp JARS $(find cruise-control*/src/main -name '*.java')
    python -m benchmarks.cruise_control_beside --classpath CLASSES:JARS

Both results are counted by :mod:`pipeline.planner.certifying`. The goals are those of Cruise Control's default list
without the ones of CPU. All brokers get capacities of which the load is two fifths, and all are live: where one is
dead, Cruise Control moves the replicas of that one alone, and balances in another run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.planner_speed import SIZES, STARTS, cluster
from pipeline.planner.arrays import Array, np
from pipeline.planner.certifying import Certificate, certified
from pipeline.planner.planning import attempt, bytes_at_least
from pipeline.planner.problem import Problem
from pipeline.planner.state import bounds_of, leader_out, loads_of

SOURCE: Final = Path(__file__).parent / "cruise_control" / "Optimizer.java"
USED: Final = 0.4
"""Share of all capacities that the load is."""
UNITS: Final = (1e3, 1e3, 1e6)
"""Bytes in a unit of Cruise Control: of traffic in and out, and of disks."""
TIMEOUT_S: Final = 7_200


def main() -> None:
    """Prints one JSON object: the CPU seconds, the bytes and the broken goals of both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cruise_control_beside", description=__doc__)
    parser.add_argument("--classpath", required=True, help="classes of Cruise Control and the jars that they need")
    parser.add_argument("--size", type=int, default=0, help="number of the size in benchmarks.planner_speed")
    parser.add_argument("--start", choices=STARTS, default="skewed")
    parser.add_argument("--mode", choices=("fast", "regular"), default="regular", help="of Cruise Control")
    chosen = parser.parse_args()
    problem = with_capacities(cluster(SIZES[chosen.size], chosen.start))
    loads = loads_of(problem, problem.replicas)
    least = bytes_at_least(problem, loads, bounds_of(problem, loads))
    shown: dict[str, object] = {"before": broken(certified(problem, problem.replicas))}
    attempt(problem, 0)
    mine = attempt(problem, 0)
    shown["regent"] = {"cpuS": round(mine.cpu_s, 2), **counted(problem, mine.replicas, least)}
    began = time.perf_counter()
    goals, theirs = optimized(problem, chosen.classpath, chosen.mode)
    cpu_s = round(sum(cpu_s for _, cpu_s, _ in goals), 2)
    took = {"cpuS": cpu_s, "wholeS": round(time.perf_counter() - began, 1)}
    shown["cruiseControl"] = {**took, **counted(problem, theirs, least), "goals": goals}
    print(json.dumps(shown, indent=2))


def with_capacities(problem: Problem) -> Problem:
    """Returns the problem with live brokers of one size."""
    count, factors, outs = len(problem.brokers.ids), problem.factors, leader_out(problem)

    def each(total: float) -> Array:
        return np.full(count, total / count / USED)

    ins = each(float((problem.bytes_in * factors).sum()))
    # Goals judge a broker also by what it would send if all its replicas led.
    sent = each(float((outs * factors).sum()))
    disk = each(float((problem.size * factors).sum()))
    live = np.ones(count, bool)
    return replace(problem, brokers=replace(problem.brokers, live=live, disk=disk, bytes_in=ins, bytes_out=sent))


def optimized(problem: Problem, classpath: str, mode: str) -> tuple[list[tuple[str, float, str]], Array]:
    """Returns the goals of Cruise Control with CPU seconds and result, and the replicas that it ends with."""
    with tempfile.TemporaryDirectory() as folder:
        classes, given, found = Path(folder) / "classes", Path(folder) / "input", Path(folder) / "output"
        given.write_text("".join(f"{line}\n" for line in lines(problem)))
        subprocess.run(["javac", "-proc:none", "-d", classes, "-cp", classpath, SOURCE], check=True)
        command = ["java", "-Xmx8g", "-cp", f"{classes}:{classpath}", "Optimizer", str(given), str(found), mode]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S).stdout
        names = [line.split(" ", 2) for line in said.splitlines()]
        replicas = [[int(one) for one in line.split(" ")[2].split(",")] for line in found.read_text().splitlines()]
    return [(name, float(cpu_s), result) for name, cpu_s, result in names], np.array(replicas, np.int32)


def lines(problem: Problem) -> list[str]:
    """Returns the input of the Java program; brokers are named by their places."""
    brokers, (in_unit, out_unit, disk_unit) = problem.brokers, UNITS
    made = [
        f"broker {at} r{brokers.rack[at]} {'live' if brokers.live[at] else 'dead'} {brokers.bytes_in[at] / in_unit} "
        f"{brokers.bytes_out[at] / out_unit} {brokers.disk[at] / disk_unit}"
        for at in range(len(brokers.ids))
    ]
    outs = leader_out(problem)
    for row, placed in enumerate(problem.replicas.tolist()):
        name, number = problem.topics[problem.topic[row]], problem.partition[row]
        loads = f"{problem.bytes_in[row] / in_unit} {outs[row] / out_unit} {problem.size[row] / disk_unit}"
        made.append(f"partition {name} {number} {','.join(str(at) for at in placed if at >= 0)} {loads}")
    return made


def counted(problem: Problem, replicas: Array, least: float) -> dict[str, object]:
    """Returns the bytes that replicas cost, over the fewest, how many replicas move, and broken goals."""
    new = (replicas[:, :, None] != problem.replicas[:, None, :]).all(axis=2)
    moved = float((new.sum(axis=1) * problem.size).sum())
    return {
        "bytesOverLeast": round(moved / max(least, 1.0), 3),
        "replicasMoved": int(new.sum()),
        **broken(certified(problem, replicas)),
    }


def broken(certificate: Certificate) -> dict[str, object]:
    """Returns how often each goal is broken that is."""
    return {
        "hardBroken": certificate.hard_broken,
        "softBroken": certificate.soft_broken,
        "broken": {count.words: count.broken for count in certificate.counts if count.broken},
    }


if __name__ == "__main__":
    main()

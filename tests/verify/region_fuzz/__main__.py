"""``python -m tests.verify.region_fuzz``: an hour of faults and commands on real sockets, on each of the three stores.

::

    --store memory sqlite zookeeper    stores, all three if not given, one after the other
    --seconds 1200                     time on each store
    --seed 7                           repeats the choices, not the times
    --fence log                        how servers are fenced, drawn by the seed if not given

Prints counts, and exits with 1 where a region had two owners, a token was used twice, a term ended by itself, a command
got a response 500, or something was left at the end of a round that operators cannot end or see.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import uvloop

from tests.verify.region_fuzz.rest import NotAtRest
from tests.verify.region_fuzz.stage import FENCES, ROUND_S, STORES, Stage

SECONDS: Final = 1_200.0
REFUSALS_SHOWN: Final = 60


def main() -> int:
    """Plays the stores; returns exit code 1 where one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.region_fuzz", description=__doc__)
    parser.add_argument("--store", nargs="*", choices=STORES, default=STORES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--fence", choices=FENCES)
    parser.add_argument("--refusals", action="store_true", help="prints the texts of refusals")
    given = parser.parse_args()
    return max(played(store, given) for store in given.store)


def played(store: str, given: argparse.Namespace) -> int:
    """Plays one store; returns exit code 1 where it fails."""
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    fence = given.fence or random.Random(seed).choice(FENCES)
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))  # the path of a socket has at most 96 bytes
    print(f"{store}: --seed {seed} --fence {fence}, logs in {folder}", flush=True)
    logging.basicConfig(filename=folder / "agents.log", level=logging.INFO, force=True)
    stage, began_s, faults = Stage(folder, store, fence, seed), time.monotonic(), list[str]()
    try:
        uvloop.run(stage.run(given.seconds, ROUND_S))
    except NotAtRest as error:
        faults.append(f"not at rest: {error}")
    faults += stage.faults()
    print(f"{store}: {time.monotonic() - began_s:.0f} s, {stage.figures()}")
    if given.refusals:
        for text, count in stage.operator.refusals.most_common(REFUSALS_SHOWN):
            print(f"{store}: {count} x {text}")
    print(f"{store}: {len(faults)} faults", flush=True)
    for fault in faults[:20]:
        print(f"{store}: {fault}", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a verb: ``python -m pipeline VERB ...``, or this file itself by ``spark-submit``."""

from __future__ import annotations

import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Runs the verb that ``words`` name; returns its exit code."""
    from pipeline.verbs import VERBS
    from pipeline.verbs.options import run

    return run([verb for verb, _ in VERBS], words)


if __name__ == "__main__":
    if not __package__:
        # Run as a file: Python has put this folder on the path, where modules hide those of other packages.
        here = Path(__file__).resolve().parent
        sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
        sys.path.append(str(here.parent))
    sys.exit(main(sys.argv[1:]))

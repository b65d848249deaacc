"""``python -m tests.verify.stock_tools``: prints what differs; exit code 1 where that is not explained.

With ``--separately`` each line starts a JVM of its own, as the scripts of the tools do; without it they share one, for
which a JDK must be there.
"""

from __future__ import annotations

import asyncio
import sys

from tests.verify.stock_tools.compare import differences, play


def main() -> int:
    """Runs the comparison; progress goes to standard error."""
    played = asyncio.run(play(_progress, separately="--separately" in sys.argv[1:]))
    found = list(differences(played))
    unexplained = [one for one in found if one.accepted() is None]
    for one in unexplained:
        print(one)
    lines = {site: len(results) for site, results in played.items()}
    print(f"{lines}: {len(found)} differ, {len(unexplained)} of them without an explanation", file=sys.stderr)
    return 1 if unexplained else 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

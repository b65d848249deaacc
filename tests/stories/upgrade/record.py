"""Writes ``data/`` anew from a checkout of revision 2558b706: ``python -m tests.stories.upgrade.record CHECKOUT``."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.stories.upgrade.golden import FOLDER

HERE: Final = Path(__file__).parent


def main() -> None:
    """Runs the recorder inside of the checkout, whose modules it imports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", metavar="CHECKOUT", type=Path, help="folder with revision 2558b706")
    checkout = parser.parse_args().checkout.resolve()
    environment = os.environ | {"PYTHONPATH": f"{checkout}{os.pathsep}{HERE}"}
    subprocess.run([sys.executable, "-m", "recording", FOLDER], cwd=checkout, env=environment, check=True)


if __name__ == "__main__":
    main()

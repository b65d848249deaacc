"""Runs ``python -m testing.simulated``."""

import sys

from testing.simulated.process import main

if __name__ == "__main__":
    sys.exit(main())

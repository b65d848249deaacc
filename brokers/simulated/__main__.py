"""``python -m brokers.simulated``."""

import sys

from brokers.simulated.process import main

if __name__ == "__main__":
    sys.exit(main())

"""Writes all recordings of the checkout that is the working directory into the folder that is given."""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

from . import of_kafka, of_regions

into = Path(sys.argv[1])
for name, recorded in (
    ("kafka", of_kafka.recorded),
    ("regions_zookeeper", lambda: of_regions.recorded("zookeeper")),
    ("regions_sqlite", lambda: of_regions.recorded("sqlite")),
):
    text = "".join(f"{line}\n" for line in recorded())
    (into / f"{name}.jsonl.xz").write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))

"""Has freed memory go back to the system; imports little, as its test measures a process that has nothing else."""

from __future__ import annotations

import ctypes
from typing import Final

BLOCK_BYTES: Final = 32_768
"""Size from which blocks have pages of their own: pieces of a request have 64 KiB, the request up to 16 MiB."""
_M_MMAP_THRESHOLD: Final = -3


def return_freed_memory() -> None:
    """Fixes the size from which glibc maps a block by itself; elsewhere nothing changes.

    By default glibc raises it to the largest block that was freed, up to 32 MiB. Blocks below it share pages with
    small ones that live on, and their memory stays with the process.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, BLOCK_BYTES)

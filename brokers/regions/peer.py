"""Names the side that connected: what its Hello has proven, which bounds the requests that it may send."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

PROOF_BYTES_MIN = 16
DIGEST_CHARS = 32


class Peer(NamedTuple):
    """A connection that was greeted.

    ``serves``: it gave the secret of servers; otherwise it may only ask for routes. ``proof``: digest of the proof in
    its Hello, empty without one.
    """

    serves: bool = True
    proof: str = ""


def digest_of(proof: bytes) -> str:
    """Returns the hash that is stored in place of a proof: no request can be sent with it."""
    return hashlib.sha256(proof).hexdigest()[:DIGEST_CHARS] if proof else ""

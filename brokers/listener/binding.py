"""Reports why a listener cannot be bound, in one sentence with the remedy."""

from __future__ import annotations

import errno


class Unbound(OSError):
    """Raised for an address that cannot be bound; the text names cause and remedy."""

    def __str__(self) -> str:
        return str(self.strerror)


def unbound(listener: str, key: str, host: str, port: int, error: OSError) -> Unbound:
    """Returns the error to raise for a failed bind of ``listener``, whose port is the setting ``key``."""
    number = error.errno or 0
    if number == errno.EADDRINUSE:
        cause, remedy = "another process listens there", f"stop that process, or set another {key}"
    else:
        cause = error.strerror or str(error)
        remedy = f"correct {key.partition('.')[0]}.host, or set another {key}"
    return Unbound(number, f"{listener} cannot listen on {host}:{port}: {cause}. Remedy: {remedy}")

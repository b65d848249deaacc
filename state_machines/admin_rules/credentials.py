"""Judges AlterUserScramCredentials (KIP-554; Kafka ``ZkAdminManager``), and finds expired tokens (KIP-48).

A client sends passwords salted already. The user's settings keep what RFC 5802 derives from them, as text.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from msgspec import Struct

MECHANISMS: Final = {1: ("SCRAM-SHA-256", "sha256"), 2: ("SCRAM-SHA-512", "sha512")}
"""By number: the name, which is also the key of the setting, and the hash."""
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384


class ScramError(IntEnum):
    """Kafka error codes that a user of the request can get."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    REQUEST_TIMED_OUT = 7
    UNSUPPORTED_SASL_MECHANISM = 33
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93


class ScramRefusal(Struct, frozen=True, gc=False):
    """The error for a user whose credentials stay as they are."""

    error: ScramError
    why: str


class Salted(Struct, frozen=True, gc=False):
    """A password after ``iterations`` rounds; its text shows no secret."""

    iterations: int
    salt: bytes
    password: bytes

    def __repr__(self) -> str:
        return f"Salted(iterations={self.iterations})"


class Alteration(Struct, frozen=True, gc=False):
    """One credential: set anew, or (None) deleted. ``mechanism`` is any number that a client sent."""

    user: str
    mechanism: int
    salted: Salted | None


EMPTY_NAME: Final = ScramRefusal(ScramError.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
UNKNOWN_MECHANISM: Final = ScramRefusal(ScramError.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
TOO_FEW: Final = ScramRefusal(ScramError.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
TOO_MANY: Final = ScramRefusal(ScramError.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
TWICE: Final = ScramRefusal(
    ScramError.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)
ABSENT: Final = ScramRefusal(ScramError.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def sort_out(alterations: Iterable[Alteration]) -> tuple[dict[str, ScramRefusal], dict[str, list[Alteration]]]:
    """Returns the users that are refused in any case, and the alterations of the others by user."""
    by_user: dict[str, list[Alteration]] = {}
    for one in alterations:
        by_user.setdefault(one.user, []).append(one)
    refused = {user: why for user, of_user in by_user.items() if (why := _refused(of_user)) is not None}
    return refused, {user: of_user for user, of_user in by_user.items() if user not in refused}


def _refused(of_user: Sequence[Alteration]) -> ScramRefusal | None:
    """Returns the refusal of a user with a wrong alteration; an upsertion's fault comes before a deletion's."""
    for one in sorted(of_user, key=lambda a: a.salted is None):
        if (why := _illegal(one)) is not None:
            return why
    counts = Counter(one.mechanism for one in of_user)
    return TWICE if max(counts.values()) > 1 else None


def _illegal(one: Alteration) -> ScramRefusal | None:
    if not one.user:
        return EMPTY_NAME
    if one.mechanism not in MECHANISMS:
        return UNKNOWN_MECHANISM
    if one.salted is None or ITERATIONS_MIN <= one.salted.iterations <= ITERATIONS_MAX:
        return None
    return TOO_FEW if one.salted.iterations < ITERATIONS_MIN else TOO_MANY


def altered(entries: Mapping[str, str], of_user: Iterable[Alteration], *, again: bool) -> dict[str, str] | ScramRefusal:
    """Returns the user's settings afterwards. ``again``: an earlier attempt may have deleted the credential."""
    after = dict(entries)
    for one in of_user:
        key, algorithm = MECHANISMS[one.mechanism]
        if one.salted is not None:
            after[key] = credential(one.salted, algorithm)
        elif after.pop(key, None) is None and not again:
            return ABSENT
    return after


def credential(salted: Salted, algorithm: str) -> str:
    """Derives the text that brokers authenticate against (Kafka ``ScramCredentialUtils``)."""
    client_key = hmac.digest(salted.password, b"Client Key", algorithm)
    parts = {
        "salt": salted.salt,
        "stored_key": hashlib.new(algorithm, client_key).digest(),
        "server_key": hmac.digest(salted.password, b"Server Key", algorithm),
    }
    texts = [f"{key}={b64encode(part).decode()}" for key, part in parts.items()]
    return ",".join([*texts, f"iterations={salted.iterations}"])


class Token(Struct, frozen=True, gc=False):
    """Id, version of the znode, and both ends in milliseconds since 1970: as last renewed, and at the latest."""

    id: str
    version: int
    expiry_ms: int
    max_ms: int


def expired(token: Token, now_ms: int) -> bool:
    """Checks whether either end lies before ``now_ms``."""
    return min(token.expiry_ms, token.max_ms) < now_ms

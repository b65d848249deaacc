"""Declares the options of an agent."""

from __future__ import annotations

import ssl

import msgspec

from regent_agent.connection import REQUEST_MS_MAX, Address
from regent_agent.protocol import FEATURES_MAX


class AgentOptions(msgspec.Struct, frozen=True):
    """Options of an agent.

    ``daemons``: host and port of each. ``server``: a name of its own in the service. ``address``: where clients reach
    the server. ``software``: its version. ``incarnation``: higher than that of any process before it with this name;
    0 takes the time in microseconds. ``secret``: the bearer token, where the daemons want one.
    ``features``: "inherit" where it opens regions whose data begins in that of others, and the work that it does.
    ``side_by_side_max`` bounds the operations in progress, ``queue_max`` those that wait. ``request_ms_max``: longest
    wait for a response, except to a poll: a daemon that compares the regions of hundreds of servers may need longer.
    """

    daemons: tuple[Address, ...]
    server: str
    address: str
    software: str = ""
    incarnation: int = 0
    secret: str = ""
    tls: ssl.SSLContext | None = None
    side_by_side_max: int = 16
    queue_max: int = 10_000
    request_ms_max: int = REQUEST_MS_MAX
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("side_by_side_max", "request_ms_max"):
            if (found := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {found}: give at least 1")
        if len(self.features) > FEATURES_MAX:
            raise ValueError(f"features has {len(self.features)} names: give at most {FEATURES_MAX}")

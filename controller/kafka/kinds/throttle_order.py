"""The stored message of an operator's throttle, with the results of its brokers."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.procedures.broadcast import Broadcast, Place
from state_machines.admin_rules.throttles import Throttle

NAME: Final = "throttle"


class ThrottleOrder(Struct, frozen=True, omit_defaults=True):
    """A throttle of brokers, with all replicas of ``topics``.

    ``throttles``: the settings and what stood there, stored before anything is written. ``confirming``: the live
    brokers that are queried for their rates, and their results. ``down``: the brokers that were not live then.
    ``notes``: settings that another client changed and that stay. ``lift``: an operator has lifted it.
    """

    brokers: tuple[int, ...]
    rate_bytes_per_s: int
    topics: tuple[str, ...] = ()
    throttles: tuple[Throttle, ...] = ()
    confirming: Broadcast = Broadcast(())
    down: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    lift: bool = False


_decoder = msgspec.json.Decoder(ThrottleOrder)
_encoder = msgspec.json.Encoder()


def order_of(data: bytes) -> ThrottleOrder:
    """Decodes the message of a throttle."""
    return _decoder.decode(data)


def encode_order(order: ThrottleOrder) -> bytes:
    """Encodes the message of a throttle."""
    return _encoder.encode(order)


CONFIRMING: Final = Place(
    lambda data: order_of(data).confirming, lambda data, state: encode_order(replace(order_of(data), confirming=state))
)
"""Where the message has the broadcast."""


def sentence(order: ThrottleOrder, *, over: bool = False) -> str:
    """Returns the brokers, the rate, how many brokers have confirmed it, and whether it is or was lifted."""
    confirmed = sum(result.ok for result in order.confirming.results)
    parts = [f"brokers {list(order.brokers)} at {order.rate_bytes_per_s} bytes/s"]
    parts += [f"all replicas of topics {list(order.topics)}"] if order.topics else []
    parts += [f"{confirmed} of {len(order.brokers)} brokers confirmed it"]
    lifted = "it was lifted" if over else "it is being lifted"
    return "; ".join((*parts, *order.notes, *((lifted,) if order.lift else ())))

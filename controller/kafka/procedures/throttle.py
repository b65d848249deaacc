"""Throttles brokers for an operator: each confirms its rates, which are in force until the throttle is lifted.

Former values are stored before anything is written; the configurations are written to ZooKeeper, where brokers that are
down find them, too. Then each live broker is queried for the rates that it has in force, until it reports them or its
tries are over: a silent broker is reported, and fails nothing. The end restores each setting, unless another client
changed it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from brokers.client import BrokerCallFailed
from controller.kafka.procedures.environment import KafkaEnv
from controller.kafka.procedures.throttle_settings import entries, held_elsewhere, read, restored, retry, say, write
from controller.procedures.broadcast import Broadcast, BroadcastEnv, Phase, Place, Resending, Send, Unreachable
from controller.procedures.kinds import Effect, Kind, Step
from controller.procedures.requests import ProcedureRefused
from state_machines.admin_rules.throttles import RATES, Throttle, broker_places, throttle_brokers, unconfirmed
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Failed, Next, Outcome, Wait
from state_machines.procedures.record import Record

NAME: Final = "throttle"
LIFT: Final = b"lift"
"""The command that ends a throttle."""
QUERIES: Final = Resending(timeout_s=10.0, pause_ms=1_000, tries_max=10)
SET, IN_FORCE = 0, 2


# -- the stored message


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


# -- the steps


def demand(record: Record) -> Demand:
    """Demands a shared lock: the records themselves keep two procedures from one setting."""
    order_of(record.data)
    return Demand(Resource(Scope.SERVER, "throttles"), exclusive=False)


async def set_rates(env: KafkaEnv, record: Record) -> Outcome:
    """Stores former values, then writes the settings; fails where another procedure throttles one of them."""
    order, c = order_of(record.data), env.controller
    if order.lift:
        return Next(IN_FORCE, record.data)
    places = broker_places(order.brokers, order.topics)
    if (holder := held_elsewhere(env.live(), record.pid, places)) is not None:
        return Failed(f"{holder}: lift that throttle first, or wait for the end of that plan")
    found, failed = await read(c, {entity for entity, _ in places})
    if failed:
        return retry(failed)
    wanted = throttle_brokers(order.brokers, order.topics, order.rate_bytes_per_s, entries(found), order.throttles)
    if wanted.throttles != order.throttles:
        return Wait(env.now_ms(), encode_order(replace(order, throttles=wanted.throttles)))
    if failed := await write(c, wanted.writes, found):
        return retry(failed)
    say(wanted.notes)
    return Next(SET + 1, encode_order(_to_confirm(env, replace(order, notes=wanted.notes))))


def _to_confirm(env: KafkaEnv, order: ThrottleOrder) -> ThrottleOrder:
    live = env.controller.cluster.brokers
    servers = tuple(broker for broker in order.brokers if broker in live)
    down = tuple(broker for broker in order.brokers if broker not in live)
    return replace(order, confirming=Broadcast(servers, b"%d" % order.rate_bytes_per_s), down=down)


async def restore_rates(env: KafkaEnv, record: Record) -> Outcome:
    """Restores the former values; what ZooKeeper refuses now is tried again."""
    order = order_of(record.data)
    if not order.throttles:
        return Done(sentence(order, over=True).encode())
    found = await restored(env.controller, order.throttles)
    say(found.notes)
    if found.left == order.throttles:
        return retry(found.failed)
    after = replace(order, throttles=found.left, notes=(*order.notes, *found.notes))
    return Wait(env.now_ms(), encode_order(after))


def _query(env: KafkaEnv) -> Send:
    async def query(broker: int, message: bytes) -> str:
        known, dial = env.controller.cluster.brokers.get(broker), env.controller.dial
        if known is None:
            raise Unreachable(f"broker {broker} is down: it reads the setting from ZooKeeper when it starts")
        if dial is None:
            raise Unreachable("this daemon queries no broker")
        try:
            async with dial(known) as queries:
                reported = await queries.broker_configs(broker, RATES)
        except BrokerCallFailed as failed:
            raise Unreachable(str(failed)) from failed
        if differs := unconfirmed(broker, int(message), reported):
            raise Unreachable("; ".join(differs))
        return "in force"

    return query


_confirming: Final[Phase[KafkaEnv]] = Phase(
    lambda env: BroadcastEnv(env.responses, env.now_ms),
    _query,
    last=False,
    lenient=True,
    how=QUERIES,
    place=CONFIRMING,
)


async def confirm(env: KafkaEnv, record: Record) -> Outcome | Effect:
    """Queries each live broker for its rates, until it reports them or its tries are over."""
    if order_of(record.data).lift:
        return Next(IN_FORCE, record.data)
    return await _confirming.execute(env, record)


async def in_force(env: KafkaEnv, record: Record) -> Outcome:
    """Waits until an operator lifts the throttle, then restores the former values."""
    if order_of(record.data).lift:
        return await restore_rates(env, record)
    return Wait(0, record.data, durable=False)


def command(record: Record, data: bytes) -> bytes:
    """Returns the message of a throttle that is lifted; raises :class:`ProcedureRefused`."""
    if data != LIFT:
        raise ProcedureRefused(f"pid {record.pid}: a throttle has one command, {LIFT.decode()}")
    return encode_order(replace(order_of(record.data), lift=True))


THROTTLE: Final[Kind[KafkaEnv]] = Kind(
    NAME,
    (
        Step("set rates", set_rates, restore_rates),
        Step("confirm on brokers", confirm),
        Step("in force", in_force),
    ),
    demand,
    command=command,
)

"""Names the caller of a client's call, as the call's record has it."""

from __future__ import annotations

from typing import Final

from brokers.listener.envelopes import CarriedCall
from state_machines.procedures.record import Caller

NAME_CHARS_MAX: Final = 500
"""Characters of a principal or a client in a record; clients choose their names."""


def caller_of(call: CarriedCall) -> Caller:
    """Returns the caller of a call. Its nonce is the id of the call, the same in every attempt."""
    client = f"{call.client_id} at {call.client_host}" if call.client_id else call.client_host
    return Caller(call.principal[:NAME_CHARS_MAX], client[:NAME_CHARS_MAX], nonce=call.call_id.hex())

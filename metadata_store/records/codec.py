"""Encodes and decodes a stored record: its JSON, and a checksum of that, beside it or as its last line."""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec
from msgspec.structs import replace

from state_machines.procedures.record import NO_CALLER, VERSION, Caller, Fault, Record, newer

SEAL_DIGITS: Final = 8
"""Hexadecimal digits of a checksum that is stored as the last line of a body."""

DIFFERS: Final = "its checksum differs"
NO_CRC: Final = -1
"""Stands for a checksum that is no number."""

_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder(Record).decode
_crc32 = zlib.crc32


class _Head(msgspec.Struct):
    version: int = VERSION


_CALLER: Final = re.compile(rb'"caller":(\{[^{}]*\})')
"""The caller in bytes that are no JSON any more."""

_head = msgspec.json.Decoder(_Head)
_signed = msgspec.json.Decoder(Caller)


class Unreadable(Exception):
    """The bytes are no record that this version reads; the text says why. ``caller``: as far as it can be read."""

    def __init__(self, fault: Fault, why: str, caller: Caller | None = None) -> None:
        super().__init__(why)
        self.fault = fault
        self.caller = caller or NO_CALLER


def encode(record: Record) -> bytes:
    """Encodes a record. Of a family the root alone has the caller: hundreds of children would repeat it."""
    return _encoder.encode(replace(record, caller=NO_CALLER) if record.parent else record)


def checksum(body: bytes) -> int:
    """Returns the CRC-32 of a body."""
    return _crc32(body)


def sealed(record: Record) -> bytes:
    """Encodes a record with its checksum as the last line, for a store without a place of its own for that."""
    body = encode(record)
    return b"%b\n%08x" % (body, checksum(body))


def unsealed(pid: int, data: bytes) -> Record:
    """Decodes a record that :func:`sealed` made; one without a checksum, too: operators may write records by hand."""
    body, newline, seal = data.rpartition(b"\n")
    if not newline:
        return decode(pid, data)
    if len(seal) < SEAL_DIGITS:
        raise _unreadable(body, "its checksum is truncated", damaged=False)
    try:
        crc = int(seal, 16)
    except ValueError:
        crc = NO_CRC
    return decode(pid, body, crc)


def decode(pid: int, body: bytes, crc: int | None = None) -> Record:
    """Decodes a record; raises :class:`Unreadable` where it is damaged, of another pid, or of a newer version."""
    try:
        record = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(body, str(error), damaged=crc is not None and checksum(body) != crc) from error
    if record.version > VERSION:
        raise _newer(record.version, record.caller)
    if crc is not None and _crc32(body) != crc:
        raise Unreadable(Fault.CORRUPT, DIFFERS, record.caller)
    if record.pid != pid:
        raise Unreadable(Fault.OTHER_PID, f"it is the record of pid {record.pid}", record.caller)
    return record


def _unreadable(body: bytes, why: str, *, damaged: bool) -> Unreadable:
    """Returns the fault of a body that cannot be decoded. A newer one is understood as far as its caller."""
    try:
        version = _head.decode(body).version
    except (msgspec.DecodeError, UnicodeDecodeError):
        version = VERSION
    if version <= VERSION:
        fault = Fault.TRUNCATED if "truncated" in why else Fault.CORRUPT
        return Unreadable(fault, DIFFERS if damaged and fault is Fault.CORRUPT else why, _caller(body))
    return _newer(version, _caller(body))


def _caller(body: bytes) -> Caller:
    """Finds the caller in a body that cannot be decoded, where its bytes are sound."""
    found = _CALLER.search(body)
    try:
        return _signed.decode(found[1]) if found is not None else NO_CALLER
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NO_CALLER


def _newer(version: int, caller: Caller) -> Unreadable:
    return Unreadable(*newer(version, VERSION), caller)

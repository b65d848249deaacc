"""Encodes and decodes a stored record: its JSON, and a checksum of that."""

from __future__ import annotations

import zlib

import msgspec

from state_machines.procedures.record import VERSION, Record

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class _Head(msgspec.Struct):
    version: int = VERSION


_head = msgspec.json.Decoder(_Head)


class Unreadable(Exception):
    """The bytes are no record that this version reads; the text says why."""


def encode(record: Record) -> bytes:
    """Encodes a record."""
    return _encoder.encode(record)


def checksum(body: bytes) -> int:
    """Returns the CRC-32 of a body."""
    return zlib.crc32(body)


def decode(pid: int, body: bytes, crc: int | None = None) -> Record:
    """Decodes a record; raises :class:`Unreadable` where it is damaged, of another pid, or of a newer version."""
    if crc is not None and checksum(body) != crc:
        raise Unreadable("its checksum differs")
    try:
        record = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(_cause(body, error)) from error
    if record.version > VERSION:
        raise Unreadable(_newer(record.version))
    if record.pid != pid:
        raise Unreadable(f"it is the record of pid {record.pid}")
    return record


def _cause(body: bytes, error: Exception) -> str:
    """Returns why a body cannot be decoded: its newer format, or else the decoder's error."""
    try:
        version = _head.decode(body).version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return str(error)
    return _newer(version) if version > VERSION else str(error)


def _newer(version: int) -> str:
    return f"format {version} is newer than this daemon's ({VERSION}): upgrade the daemon"

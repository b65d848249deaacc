"""Codecs of every znode of a Kafka cluster: bytes to values and back, bad data as :class:`Malformed`."""

from metadata_store.codecs.base import Malformed

__all__ = ["Malformed"]

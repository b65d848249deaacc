"""Encodes and decodes every znode of a Kafka cluster; bad data becomes :class:`Malformed`."""

from metadata_store.codecs.base import Malformed

__all__ = ["Malformed"]

"""Encodes and decodes every znode of a Kafka cluster; bad data becomes :class:`MalformedNode`."""

from metadata_store.codecs.base import MalformedNode

__all__ = ["MalformedNode"]

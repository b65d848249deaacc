"""Encodes and decodes the Kafka protocol: codecs and versions, without sockets or state of a term."""

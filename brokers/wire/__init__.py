"""Bytes of the Kafka protocol: codecs and versions. No sockets, no state."""

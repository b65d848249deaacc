"""Stores metadata in ZooKeeper: the port with its two adapters, the codecs of all znodes, and the typed Kafka store."""

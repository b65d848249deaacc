"""Metadata in ZooKeeper: the port with its two adapters, the codecs of every znode, and the typed Kafka store."""

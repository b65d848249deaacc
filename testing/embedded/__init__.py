"""Runs real ZooKeeper and Kafka in processes of their own, for the demo and the tests."""

"""Handlers of brokers: their arrivals and ends, shutdowns, log directories, strays and settings."""

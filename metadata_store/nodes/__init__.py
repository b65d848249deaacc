"""The znodes besides topics and partition states: one module per kind, reads and fenced writes."""

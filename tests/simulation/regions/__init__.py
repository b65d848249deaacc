"""Regions, servers and daemons in virtual time, with faults by seed and invariants after every event."""

"""Keeps the one path of every change in a term, the one way in for facts, the event queue, the gate, and the memory.

Nothing here knows which event led to a change.
"""

"""Provides the engine of a term: the one path of every change, the event queue, the gate, the term's memory.

Nothing here knows which event led to a change.
"""

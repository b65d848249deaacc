"""The engine of a term: the one path of every change, the event queue, the gate, and what a term remembers.

Nothing here knows which event led to a change.
"""

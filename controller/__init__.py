"""Does everything that one daemon does while it holds the role, waits for it, or shadows it.

Each room may import the rooms below it alone (``.importlinter``); decisions live in :mod:`state_machines`.
"""

"""Plays random faults and commands against real daemons with agents on real sockets, round after round.

At the end of each round all faults end, and nothing may be left that operators cannot end or see. See ``__main__``.
"""

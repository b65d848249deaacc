"""Shadows the active controller: decides beside it, from ZooKeeper alone, and compares; writes and sends nothing.

From pure to running: ``judgement`` judges a state znode against our decisions, ``events`` decides, ``waiting`` holds
one partition, ``tracker`` all of them, ``inference`` finds clean shutdowns, ``deadlines`` ends the waiting,
``timeline`` orders the events, ``statistics`` counts, ``reading`` and ``read_only`` read, ``shadow`` runs.
"""

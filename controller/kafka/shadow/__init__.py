"""Shadows the active controller: decides beside it, from ZooKeeper alone, and compares; writes and sends nothing.

From pure to running: ``judgement`` judges a state znode against our decisions, ``events`` decides, ``waiting`` holds
one partition, ``tracker`` all of them, ``unmatched`` judges what finds no counterpart, ``timeline`` orders the events,
``report`` counts, ``reading`` and ``read_only`` read, ``shadow`` runs.
"""

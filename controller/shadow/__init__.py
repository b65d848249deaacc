"""Shadow mode: decides beside the controller in office, from ZooKeeper alone, and compares; writes and sends nothing.

From pure to running: ``judgement`` judges a state znode against our decisions, ``events`` decides, ``waiting`` holds
one partition, ``tracker`` all of them, ``inference`` finds clean shutdowns, ``deadlines`` ends the waiting,
``timeline`` puts what is read in order, ``statistics`` counts, ``reading`` and ``read_only`` read, ``shadow`` runs.
"""

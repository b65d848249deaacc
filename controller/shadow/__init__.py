"""Shadow mode: decides beside the controller in office, from ZooKeeper alone, and compares; writes and sends nothing.

From pure to running: ``compare`` judges a state znode against our decisions, ``happenings`` decides, ``waiting`` holds
one partition, ``tracker`` all of them, ``inference`` finds clean shutdowns, ``deadlines`` ends the waiting,
``timeline`` puts what is read in order, ``tally`` counts, ``reading`` and ``read_only`` read, ``shadow`` runs.
"""

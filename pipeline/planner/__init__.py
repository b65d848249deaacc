"""Plans assignments of replicas from arrays: loads and limits in, moves with a reason each out.

It needs NumPy and Numba, and no Spark. :mod:`~pipeline.planner.problem` declares the input;
:mod:`~pipeline.planner.planning` runs the search with several seeds, and :mod:`~pipeline.planner.certifying`, which
shares no code with the search, counts all goals anew. The daemon never imports this package.
"""

"""Answers operators' requests: status, lists, explanations, comparisons, take-overs and hand-backs.

Responses come from memory, and no term waits for this package. Decisions read one value that it reads for them, too:
``min.insync.replicas``, which the term reads itself where it needs it sooner.
"""

"""Answers operators' requests: status, lists, explanations, comparisons, take-overs and hand-backs.

Responses come from memory. No decision depends on this package, and no term waits for it.
"""

"""Answers to operators: status, lists, explanations, comparisons, and the take-overs and hand-backs they start.

Answers come from memory. Nothing here is decided on, and no term waits for it.
"""

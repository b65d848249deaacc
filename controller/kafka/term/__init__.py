"""Runs one term, from the won claim to its end: the event loop, and the watches, brokers and calls that feed it.

The reaction to one kind of event belongs to the rooms of its subject.
"""

"""Holds one module per kind of event, and helpers that several of them share.

A handler reads what changed, has the pure core decide, and carries the decision out. Handlers change metadata only
under the fence of the term; besides, they create empty parent znodes.
"""

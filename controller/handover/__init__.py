"""Take-over and hand-back of the role: preflight, roll-back, and hand-backs without a daemon.

Every step may be repeated. This package knows no running daemon.
"""

"""Takes the role over and hands it back: preflight, roll-back, and hand-backs without a daemon.

Every step may be repeated. This package knows no running daemon.
"""

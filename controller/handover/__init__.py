"""How the role comes to regent and goes back: preflight, take-over, roll-back, and hand-backs without a daemon.

Every step may be repeated. Nothing here knows a running daemon.
"""

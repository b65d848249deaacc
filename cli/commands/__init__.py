"""Holds the commands, one module for each group. Heavy imports stand inside functions: ``--help`` must be quick."""

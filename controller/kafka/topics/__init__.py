"""Handles events of topics: creation, deletion, policies, ids, configurations, and ghosts."""

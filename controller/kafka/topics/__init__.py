"""Handlers of topics: their creation, deletion, policies, ids and configurations."""

"""Handlers of what clients are granted: ACLs, SCRAM credentials, tokens, quotas, features and producer ids."""

"""Handles events about clients: ACLs, SCRAM credentials, delegation tokens, producer ids and features."""

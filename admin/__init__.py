"""Serves clients as a node of the cluster: the admin endpoint, a process beside a daemon.

It forwards requests to brokers and to the daemon. It decides nothing, and writes nothing but its own announcement.
"""

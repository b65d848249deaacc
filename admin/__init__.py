"""The admin endpoint: a process beside a daemon that clients meet as a node of the cluster.

It passes calls on to brokers and to the daemon. It decides nothing, and writes nothing but its own announcement.
"""

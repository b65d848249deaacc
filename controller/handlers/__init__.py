"""One module per kind of event: it reads what changed, has the pure core decide, and carries the decision out.

No handler writes to ZooKeeper but through the controller and the fenced store.
"""

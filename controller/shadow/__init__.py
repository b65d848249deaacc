"""Shadow mode: decides beside the controller in office, from ZooKeeper alone, and compares; writes and sends nothing.

`compare` judges one state znode against our decisions, `happenings` decides, `tracker` keeps what waits for its
counterpart, `tally` counts, `reading` reads, `shadow` runs.
"""

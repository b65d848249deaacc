"""Records partitions, brokers, requests and facts in the journal of a term."""

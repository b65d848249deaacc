"""Keeps the requests still to be sent to each broker, and its acknowledgements. Bytes and sockets are elsewhere."""

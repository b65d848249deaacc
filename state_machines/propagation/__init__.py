"""The requests that each broker has still to be sent, and what it acknowledged. Bytes and sockets are elsewhere."""

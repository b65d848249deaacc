"""The requests that each broker has still to be sent, and its acknowledgements. Bytes and sockets are elsewhere."""

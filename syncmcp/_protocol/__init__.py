"""The protocol without I/O: values in, values out. No socket, thread, lock, clock or queue."""

"""The rules of the protocol, without I/O: no sockets, threads, locks, clocks or queues."""

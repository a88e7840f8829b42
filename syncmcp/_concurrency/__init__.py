"""Deadlines and timers, thread pools, cancel tokens, futures, queues."""

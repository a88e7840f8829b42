"""Deadlines and timers, thread pools, cancel tokens, futures, waits, locks, rate limits."""

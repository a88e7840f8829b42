"""Observability: metrics, tracing, logging, and a dump of what a client is doing."""

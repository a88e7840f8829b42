"""Transports to a server: stdio, Streamable HTTP, HTTP+SSE, memory."""

"""The ways to reach a server: stdio, Streamable HTTP, memory."""

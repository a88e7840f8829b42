"""A server in this process that speaks every revision, for tests of clients."""

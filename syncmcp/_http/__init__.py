"""HTTP exchanges that any thread may abort: connections, sessions, errors, checks of URLs."""

"""One connection, from opening to its end: requests in both directions, interceptors."""

"""One life of one transport: requests in both directions, notifications, interceptors."""

"""Looking in: metrics, tracing, logging, and a picture of what a client is doing."""

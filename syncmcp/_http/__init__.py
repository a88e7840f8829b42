"""One HTTP exchange that any thread may abort, and what it is made with."""

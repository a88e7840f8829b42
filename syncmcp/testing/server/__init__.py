"""The test server: its protocol, sessions and handlers, and its transports.

`wire` and `events` are formats. A `session` receives messages; `dispatch` finds the handler of each
request, which gets a `context`. `server` is the public class; `http` and `serving` are HTTP.
"""

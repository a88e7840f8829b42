"""The command ``syncmcp``: MCP servers from a shell. Needs the extra `cli`."""

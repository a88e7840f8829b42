"""Streamlit: each click runs the script again, with the same client.

streamlit run streamlit_app.py
"""

from __future__ import annotations

import sys

import streamlit as st

import syncmcp
from syncmcp.types import CallToolResult

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")


@st.cache_resource
def shared_client() -> syncmcp.Client:
    """Return one client for all visitors and all runs of the script."""
    return syncmcp.Client(SERVER, lazy=True, timeout=30.0)


client = shared_client()
a, b = st.number_input("a", value=1), st.number_input("b", value=2)

if st.button("Add"):
    try:
        st.success(client.call_tool("add", {"a": a, "b": b}).raise_for_error().text)
    except syncmcp.McpError as error:
        st.error(str(error))

if st.button("Count down"):
    # Streamlit draws only on the thread of the script. Callbacks run on others, so iterate here.
    bar = st.progress(0.0)
    for item in client.call_tool.stream("countdown", {"steps": 3, "delay": 0.1}):
        if isinstance(item, syncmcp.Progress):
            bar.progress(item.progress / (item.total or 1), text=item.message or "")
        elif isinstance(item, CallToolResult):
            st.success(item.text)

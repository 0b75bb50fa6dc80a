"""The agent side: a memory that forgets exactly what went stale. It knows only the contract."""

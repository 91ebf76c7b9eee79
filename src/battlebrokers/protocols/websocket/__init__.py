"""WebSocket messages in a contender's dialect."""

"""What is spoken over pipes and sockets: lines, JSON-RPC, HTTP."""

ROOMS = (
    "http_server",  # an HTTP server of this process
    "jsonrpc",  # one end of a JSON-RPC conversation over lines of JSON
    "output_pipe",  # what a process writes, and whether all of it was read
    "byte_lines",  # lines out of a stream of bytes, bounded in memory
)
"""Top first: each imports only those below it."""

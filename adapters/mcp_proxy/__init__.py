"""A policy-enforcing proxy before any MCP server.

    wire            messages, and what the proxy answers itself
    names           what a tool is called in a policy; annotations
    visibility      which tools could be called now
    tool_list       which tools a client was shown
    pending         what a client has asked for and waits for
    relay           one connection
    stdio           the client on this process's pipes
    downstream      where agents connect
    http            agents over streamable HTTP
    upstream        where the server is
    session         one run
    adapter         McpProxyAdapter
    serving         a run from its options

Importing this package needs no MCP library; using it needs `proctor[mcp]`. The command is `proctor mcp`.
"""

"""The Amp client, driven through its stream of JSON, its calls held by its own permission rules.

A file imports only files listed above it.

    delegate        the program the client asks before a call; a process of its own
    names           the client's names of tools -> ours
    compiling       policy -> permission rules
    asking          where the delegate asks us
    translation     what the client reports -> events
    session         one prompt: gate answers, events, the cancel ladder
    adapter         AmpAdapter: what it can do, how it starts
"""

from .adapter import AmpAdapter

__all__ = ["AmpAdapter"]

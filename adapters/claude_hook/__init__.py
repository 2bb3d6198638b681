"""A person's own Claude Code under policies, through the hooks of its settings.

    asked       what the client tells a hook
    answers     what the client is told
    record      the session's record, one hook at a time
    log_lines   what one line of the client's log says was used
    usage       what the client's log says was used
    session     a session folded from its record
    keeping     what a hook adds to the record; runs begin and end
    deciding    what one hook means for its session
    hook        one hook, from input to answer
    settings    the client's settings file
    __main__    one hook, as the client starts it

Each hook is a process of its own, so importing this package imports nothing else.
"""

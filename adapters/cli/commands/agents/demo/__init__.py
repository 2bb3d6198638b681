"""`demo`: a supervised session with nothing to set up. Policies and script are the files beside this one."""

from .command import demo

__all__ = ["demo"]

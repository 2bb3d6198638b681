"""ShellAdapter: command lines as runs."""

from .adapter import ShellAdapter

__all__ = ["ShellAdapter"]

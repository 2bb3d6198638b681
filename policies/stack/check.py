"""What every reader of a policy begins with: the stack it stands for, known to be sound."""

from __future__ import annotations

from ..policy import Policy, Stack, members_of
from .merge import merge_policies


def checked_stack(policy: Policy) -> Stack:
    """The stack of a policy, or the stack itself; what was checked before is not checked again.

    Raises:
        PolicyError: it is not a policy, or something in it is wrong.
    """
    return merge_policies(list(members_of(policy)))

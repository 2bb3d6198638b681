"""Who asks."""

from __future__ import annotations

from ..operations import ApiRequest, Operation
from ..views import Me


async def _me(request: ApiRequest) -> Me:
    import proctor

    who = request.who
    return Me(name=who.name, roles=who.roles, groups=who.groups, version=getattr(proctor, "__version__", ""))


OPERATIONS = (Operation("GET", "/api/me", "me", "Who the token belongs to, and what it allows.", _me, Me),)

"""Who asks."""

from __future__ import annotations

from ..operations import ApiRequest, operation
from ..views import Me


@operation("GET", "/api/me", Me)
async def me(request: ApiRequest) -> Me:
    """Who the token belongs to, and what it allows."""
    import proctor

    who = request.who
    return Me(name=who.name, roles=who.roles, groups=who.groups, version=getattr(proctor, "__version__", ""))

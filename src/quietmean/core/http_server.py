"""How all our HTTP servers are set up: they say nothing of themselves, log no request, and believe no header about who asks."""

from __future__ import annotations

from typing import Any, Final

# Keywords of uvicorn.Config. The sockets are asyncio's own, of which the system can say which user connects.
HTTP_SERVER: Final[dict[str, Any]] = {
    "loop": "asyncio",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
    "ws": "none",
    "lifespan": "off",
}

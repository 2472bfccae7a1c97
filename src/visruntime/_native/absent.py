"""What stands on Windows for what its library has not: a refusal by whoever calls it."""

from __future__ import annotations

from visruntime.errors import JailUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

__all__ = ["decide", "decode", "encode"]


def decide(*_arguments: Any, **_options: Any) -> NoReturn:
    """Refuse to decide by a policy: none is enforced on Windows.

    Raises:
        JailUnavailable: always.
    """
    raise JailUnavailable(
        "no policy is decided on Windows, where none can be enforced",
        stage="platform",
        reason="platform",
    )


def encode(*_arguments: Any, **_options: Any) -> NoReturn:
    """Refuse to encode, in a build that has jails and no worker.

    Raises:
        JailUnavailable: always.
    """
    raise JailUnavailable(
        "this build of visruntime has no worker for Python",
        stage="library",
        reason="library",
        fix="install the build of visruntime for Windows",
    )


decode = encode

"""The table ``[python]`` of a policy file: settings of workers, which no kernel enforces."""

from __future__ import annotations

from visruntime._policy.paths import _short, visible
from visruntime._policy.values import Frozen
from visruntime.errors import PolicyError

__all__ = ["TABLE", "PythonSettings"]

TABLE = "python"
"""Name of the table; it is no field of a policy."""


class PythonSettings(Frozen):
    """What a file, or a file and those found beside it, say about workers.

    ``tls_strict`` is as `visruntime.Runtime` takes it; ``None`` where nothing is said.
    """

    __slots__ = ("tls_strict",)

    tls_strict: bool | None

    def __init__(self, *, tls_strict: bool | None = None) -> None:
        self._set(tls_strict=tls_strict)

    @classmethod
    def from_table(cls, table: object) -> PythonSettings:
        """Read the table as TOML gives it.

        Raises:
            PolicyError: for an unknown key, or a value that is no truth value.
        """
        if not isinstance(table, dict):
            raise PolicyError(
                f"{TABLE}: a table (names and values); not {type(table).__name__}",
                field=TABLE,
                value=table,
            )
        for name in table:
            if name not in cls.__slots__:
                raise PolicyError(
                    f"{TABLE}.{visible(name)}: there is no such setting; there is "
                    + ", ".join(cls.__slots__),
                    field=f"{TABLE}.{name}",
                    value=table[name],
                )
        strict = table.get("tls_strict")
        if strict is not None and not isinstance(strict, bool):
            raise PolicyError(
                f"{TABLE}.tls_strict: true or false; not {type(strict).__name__} {_short(strict)}",
                field=f"{TABLE}.tls_strict",
                value=strict,
            )
        return cls(tls_strict=strict)

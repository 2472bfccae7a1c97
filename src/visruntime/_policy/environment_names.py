"""Which environment variables a policy may hand to a guest."""

from __future__ import annotations

from types import MappingProxyType

from visruntime._policy.paths import _short
from visruntime._policy.values import Secret, check_field_list
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["check_env", "check_inherit_env", "looks_secret"]

MAX_VARIABLES = 1000
"""Most variables in ``env``, and most names in ``inherit_env``."""
MAX_VALUE_BYTES = 128 * 1024 - 1
"""Longest ``NAME=value`` in bytes; Linux refuses 128 KiB (MAX_ARG_STRLEN)."""
MAX_TOTAL_BYTES = 1024**2
"""Largest sum of all ``NAME=value``, in bytes."""

SECRET_ENDS = (
    *("CREDENTIAL", "CREDENTIALS", "KEY", "KEYS", "PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS"),
    *("SECRET", "SECRETS", "TOKEN", "TOKENS"),
)
"""How names of secrets end, as a word of its own or not: API_KEY, APIKEY, PGPASSWORD."""
SECRET_WORDS = ("AUTH", "COOKIE", "PASS", "PAT", "PWD")
"""Last words of such names, but no names by themselves: MYSQL_PWD, while PWD is a folder."""
NO_KEYS = ("DONKEY", "HOCKEY", "HOTKEY", "HOTKEYS", "JOCKEY", "MONKEY", "TURKEY", "WHISKEY")
FORMS = ("B64", "BASE", "BASE64", "JSON", "VALUE")
"""Words behind the one that counts: SECRET_KEY_BASE, GOOGLE_CREDENTIALS_JSON."""

FOREIGN_CODE = ("LD_", "DYLD_", "PERL")
"""Beginnings of names that make any program load what they name; of no use to a policy."""
FOREIGN_NAMES = ("BASH_ENV", "ENV")

STEERING = ("PYTHON", "GIT_")
"""Beginnings of names by which programs are steered: given on purpose or not at all."""
STEERING_NAMES = (
    *("BASHOPTS", "GCONV_PATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "MAVEN_OPTS"),
    *("NODE_OPTIONS", "NODE_PATH", "OPENSSL_CONF", "PROMPT_COMMAND", "PS4", "RUBYLIB"),
    *("RUBYOPT", "RUSTC_WRAPPER", "SHELLOPTS", "_JAVA_OPTIONS"),
)
"""The same, by the whole name."""


def looks_secret(name: str) -> bool:
    """Tell whether *name* is that of a secret, such as API_KEY or GITHUB_TOKEN."""
    words = name.upper().split("_")
    while len(words) > 1 and (words[-1] in FORMS or words[-1].isdigit()):
        words.pop()
    last = words[-1]
    if len(words) > 1 and last in SECRET_WORDS:
        return True
    return last.endswith(SECRET_ENDS) and last not in NO_KEYS


def check_env(env: Any) -> Mapping[str, str | Secret]:
    """Return *env* as a read-only mapping, sorted by name.

    Raises:
        PolicyError: for a name or value that a guest may not have.
    """
    if not hasattr(env, "keys"):
        raise PolicyError(
            f'env: a mapping is needed, such as {{"LANG": "C.UTF-8"}}, not {type(env).__name__}',
            field="env",
        )
    given = dict(env)
    if len(given) > MAX_VARIABLES:
        raise PolicyError(f"env: {len(given)} variables, at most {MAX_VARIABLES}", field="env")
    total = 0
    for name, value in given.items():
        _check_name(name, "env")
        total += _check_value(name, value)
    if total > MAX_TOTAL_BYTES:
        raise PolicyError(f"env: {total} bytes in all, at most {MAX_TOTAL_BYTES}", field="env")
    return MappingProxyType({name: given[name] for name in sorted(given)})


def check_inherit_env(names: object) -> tuple[str, ...]:
    """Return *names* as a tuple if each may be taken over from the host's environment.

    Raises:
        PolicyError: for a name that may not cross.
    """
    given = check_field_list(names, "inherit_env")
    if len(given) > MAX_VARIABLES:
        raise PolicyError(
            f"inherit_env: {len(given)} names, at most {MAX_VARIABLES}", field="inherit_env"
        )
    for index, name in enumerate(given):
        field = f"inherit_env[{index}]"
        _check_name(name, field)
        if looks_secret(name):
            raise PolicyError(
                f"{field}: {name} looks like a secret and is not inherited; if the guest must "
                f'have it, env={{"{name}": vr.Secret(os.environ["{name}"])}}',
                field=field,
                value=name,
            )
        if name.startswith(STEERING) or name in STEERING_NAMES:
            raise PolicyError(
                f"{field}: {name} steers programs and is not inherited; give the value itself, "
                f'env={{"{name}": "..."}}',
                field=field,
                value=name,
            )
    return given


def _check_name(name: object, field: str) -> None:
    # For ASCII text, "identifier" is exactly [A-Za-z_][A-Za-z0-9_]*.
    if not isinstance(name, str) or not (name.isascii() and name.isidentifier()):
        raise PolicyError(
            f"{field}: {_short(name)} is no variable name (letters, digits and _)",
            field=field,
            value=name,
        )
    if len(name) > 1024:
        raise PolicyError(f"{field}: a name of {len(name)} characters", field=field, value=name)
    if name.startswith(FOREIGN_CODE) or name in FOREIGN_NAMES:
        raise PolicyError(
            f"{field}: {name} makes programs load foreign code and is refused from every source",
            field=field,
            value=name,
        )


def _check_value(name: str, value: object) -> int:
    """Return the length of ``NAME=value`` in bytes; messages never hold the value."""
    field = f"env[{name!r}]"
    if isinstance(value, Secret):
        text = value.reveal()
    elif isinstance(value, str):
        if looks_secret(name):
            raise PolicyError(
                f"{field}: {name} looks like a secret; write vr.Secret(value), "
                "so that no report or log shows it",
                field=field,
            )
        text = value
    else:
        raise PolicyError(
            f"{field}: text or vr.Secret is needed, not {type(value).__name__}", field=field
        )
    if "\0" in text:
        raise PolicyError(f"{field}: NUL in the value", field=field)
    try:
        length = len(name) + 1 + len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise PolicyError(f"{field}: the value cannot be encoded", field=field) from None
    if length > MAX_VALUE_BYTES:
        raise PolicyError(f"{field}: {length} bytes, at most {MAX_VALUE_BYTES}", field=field)
    return length

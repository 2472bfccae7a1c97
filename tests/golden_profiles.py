"""Policies whose profiles are kept as text, so that a reviewer sees what a change does.

``python tests/golden_profiles.py`` writes the files anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from visruntime._native.profiles import macos_profile

FOLDER = Path(__file__).parent / "macos" / "golden"

CASES: dict[str, dict[str, Any]] = {
    "nothing": {"rules": []},
    "workspace": {
        "rules": [
            ("write", "/Users/me/project"),
            ("deny_write", "/Users/me/project/.git/hooks"),
            ("deny_write", "/Users/me/project/.git/config"),
            ("deny", "/Users/me/project/.env"),
        ],
        "held": {"/Users/me/project/.git/hooks"},
        "own": "/var/folders/ab/vj-1",
        "programs": ["git", "node", "python"],
        "system": True,
        "ignores_case": True,
    },
    "nested": {
        "rules": [
            ("read", "/data"),
            ("write", "/data/out"),
            ("read", "/data/out/kept"),
            ("deny", "/data/out/no"),
            ("write", "/data/out/no/yes"),
            ("deny_exec", "/data/out/bin"),
            ("deny_read", "/usr/share/secret"),
        ],
        "system": True,
    },
    "network": {
        "rules": [("read", "/")],
        "own": "/private/var/folders/ab/vj-2",
        "sockets": ["/var/run/service.sock"],
        "services": ["com.example.agent", "posix-shm:/psm_"],
        "network_open": True,
        "terminal": "/dev/ttys004",
    },
    "ports": {"rules": [], "host_ports": [5432, 8080]},
}


def golden(name: str) -> str:
    """Return the profile of a case, with its parameters at the end as comments."""
    text, parameters = macos_profile(**CASES[name])
    return text + "".join(f"; {key} = {value}\n" for key, value in parameters.items())


def write_all() -> None:
    """Write every file."""
    FOLDER.mkdir(exist_ok=True)
    for name in CASES:
        (FOLDER / f"{name}.sb").write_text(golden(name), encoding="utf-8")


if __name__ == "__main__":
    write_all()

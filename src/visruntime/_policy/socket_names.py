"""Sockets behind which somebody acts for whoever connects: naming one needs a second word.

To connect to a container engine, a session bus or a key agent is to run programs or to sign
in the name of the user, outside of every jail. So such a path is refused in ``sockets`` and
taken in ``sensitive_sockets`` only. The list knows names; it cannot know every server.
"""

from __future__ import annotations

import os

__all__ = ["SENSITIVE_VARIABLES", "sensitive_by_name", "sensitive_by_variable"]

_KINDS = {
    "a container engine, which starts anything as its own user": (
        "*/docker.sock */docker-*.sock */containerd.sock */containerd.sock.ttrpc */podman.sock "
        "*/crio.sock */cri-dockerd.sock */buildkitd.sock */lxd/unix.socket */incus/unix.socket "
        "*/libvirt-sock* */virtqemud-sock* */snapd.socket */snapd-snap.socket"
    ),
    "a message bus, behind which services act for the user": (
        "*/system_bus_socket /run/user/*/bus */at-spi/bus* */ibus/dbus-* */dbus-??????????"
    ),
    "the service manager": "/run/systemd/* /run/user/*/systemd/* /run/initctl",
    "an agent or ring that signs and decrypts with the user's keys": (
        "*/S.gpg-agent* */S.scdaemon */S.keyboxd */S.dirmngr */ssh-*/agent.* */ssh-agent* "
        "*/keyring/* */keyring-*/* */gcr/ssh */kwallet*.socket */pcscd.comm */1password/*.sock "
        "*/agent.sock"
    ),
    "the user's screen, keyboard or sound": (
        "*/.X11-unix/* /run/user/*/wayland-* /run/user/*/pipewire-* /run/user/*/pulse/*"
    ),
    "a terminal or editor of the user, which runs commands": (
        "*/tmux-*/* */screen/S-*/* /run/screen/* */emacs*/server */vscode-ipc-*.sock "
        "*/vscode-git-*.sock */nvim*.0"
    ),
}

SENSITIVE_VARIABLES = (
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "GNOME_KEYRING_CONTROL",
    "NOTIFY_SOCKET",
    "TMUX",
    "WAYLAND_DISPLAY",
)
"""Variables of the host that name such a socket wherever it lies."""


def sensitive_by_name(path: str) -> str | None:
    """Return what is behind *path*, an absolute one, if its name says so; else ``None``."""
    from fnmatch import fnmatchcase

    forms = [path]
    if path.startswith("/var/run/"):
        forms.append(path.removeprefix("/var"))
    for what, patterns in _KINDS.items():
        if any(fnmatchcase(form, one) for form in forms for one in patterns.split()):
            return what
    return None


def sensitive_by_variable(path: str) -> str | None:
    """Return which variable of this process names *path*, if one does."""
    for name in SENSITIVE_VARIABLES:
        value = os.environ.get(name, "")
        words = value.replace("unix:path=", " ").replace("unix://", " ").replace(",", " ")
        if path in words.split():
            return name
    return None

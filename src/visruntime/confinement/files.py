"""Files: what is not granted, what is only readable, and what is denied inside a grant.

``S.top`` holds ``secret``, which is granted to nobody, ``read`` (a read grant) and ``work`` (a
write grant, in it ``denied``, ``kept`` against writing, and ``folder/denied``).
"""

from __future__ import annotations

from visruntime.confinement.attempt import Attempt

__all__ = ["ATTEMPTS"]

ATTEMPTS = (
    Attempt("files.open", "open a file that is not granted",
        "on_path(lambda: open(S.secret).close(), S.secret)"),
    Attempt("files.system", "open a file of the system that is not granted",
        "on_path(lambda: open(S.system).close(), S.system)"),
    Attempt("files.stat", "read size and times of a file that is not granted",
        "on_path(lambda: os.stat(S.secret), S.secret)"),
    Attempt("files.proc_root", "open it by /proc/self/root",
        "on_path(lambda: open('/proc/self/root' + S.secret).close(), S.secret)"),
    Attempt("files.proc_cwd", "open it by /proc/self/cwd and two dots",
        "os.chdir(S.read)\n"
        "on_path(lambda: open('/proc/self/cwd/../secret').close(), S.secret)"),
    Attempt("files.dir_fd", "open it relative to a folder's descriptor, of which no event tells",
        "folder = os.open(S.read, os.O_RDONLY)\n"
        "on_path(lambda: os.close(os.open('../secret', os.O_RDONLY, dir_fd=folder)), S.secret)"),
    Attempt("files.surrogate", "open it by a path that is no valid text",
        "os.makedirs(S.work + '/\\udcff', exist_ok=True)\n"
        "on_path(lambda: open(S.work + '/\\udcff/../../secret').close(), S.secret)"),
    Attempt("files.symbolic_link", "open it by a link that was planted in a write grant",
        "os.symlink(S.secret, S.work + '/link')\n"
        "on_path(lambda: open(S.work + '/link').close(), S.secret)"),
    Attempt("files.hard_link", "give it a second name in a write grant",
        "on_path(lambda: os.link(S.secret, S.work + '/hard'), S.secret)"),
    Attempt("files.write", "write to a file of a read grant",
        "on_path(lambda: open(S.read + '/file', 'a').close(), S.read + '/file', writes=True)"),
    Attempt("files.truncate", "empty a file of a read grant",
        "on_path(lambda: os.truncate(S.read + '/file', 0), S.read + '/file', writes=True)"),
    Attempt("files.reopen", "open a descriptor of it anew for writing, by /proc/self/fd",
        "handle = os.open(S.read + '/file', os.O_RDONLY)\n"
        "on_path(lambda: os.close(os.open(f'/proc/self/fd/{handle}', os.O_RDWR)),"
        " S.read + '/file', writes=True)"),
    Attempt("files.mode", "change the mode of a file of a read grant",
        "on_path(lambda: os.chmod(S.read + '/file', 0o666), S.read + '/file', writes=True)"),
    Attempt("files.times", "change its times",
        "on_path(lambda: os.utime(S.read + '/file', (1, 1)), S.read + '/file', writes=True)"),
    Attempt("files.create", "make a file in a read grant",
        "on_path(lambda: open(S.read + '/new', 'x').close(), S.read + '/new', writes=True)"),
    Attempt("files.remove", "remove a file of a read grant",
        "on_path(lambda: os.unlink(S.read + '/doomed'), S.read + '/doomed', writes=True)"),
    Attempt("files.move_out", "move a file out of a read grant",
        "between(lambda: os.rename(S.read + '/moved', S.work + '/moved'),"
        " S.read + '/moved', S.work + '/moved')"),
    Attempt("files.exchange", "exchange a file of a read grant for another",
        "open(S.work + '/other', 'w').close()\n"
        "between(lambda: raw('renameat2', -100, os.fsencode(S.work + '/other'), -100,"
        " os.fsencode(S.read + '/exchanged'), 2), S.work + '/other', S.read + '/exchanged')"),
    Attempt("files.unnamed", "link a file without a name into a read grant",
        "handle = os.open(S.work, os.O_TMPFILE | os.O_RDWR)\n"
        "name = os.fsencode(f'/proc/self/fd/{handle}')\n"
        "between(lambda: raw('linkat', -100, name, -100, os.fsencode(S.read + '/planted'), 0x400),"
        " S.work + '/x', S.read + '/planted')"),
    Attempt("files.denied", "read a file that is denied inside a write grant",
        "on_path(lambda: open(S.work + '/denied').close(), S.work + '/denied')"),
    Attempt("files.kept", "write to a file that is kept from writing inside a write grant",
        "on_path(lambda: open(S.work + '/kept', 'a').close(), S.work + '/kept', writes=True)"),
    Attempt("files.second_name", "give that file a second name, to write by it",
        "between(lambda: os.link(S.work + '/kept', S.work + '/alias'),"
        " S.work + '/kept', S.work + '/alias')"),
    Attempt("files.uncover", "uncover a denied file by moving the folder above it",
        "between(lambda: os.rename(S.work + '/folder', S.work + '/elsewhere'),"
        " S.work + '/folder', S.work + '/elsewhere')"),
    Attempt("files.shared_memory", "open a shared memory file of the host",
        "on_path(lambda: open(S.shared_memory).close(), S.shared_memory)"),
    Attempt("files.terminal", "open a terminal of the host",
        "on_path(lambda: os.close(os.open(S.terminal, os.O_RDWR | os.O_NOCTTY)), S.terminal)"),
)  # fmt: skip

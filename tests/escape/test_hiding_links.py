"""Links by which something is hidden must stay: without one the next jail would not hide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, backends, errno, inside, jail_by, outside

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCENES: dict[str, tuple[str, str, Callable[[Path], JailPolicy]]] = {
    "secret": (".env", "dotfiles/prod", lambda top: JailPolicy(write=[top])),
    "secret in a workspace": (".env", "dotfiles/prod", JailPolicy.workspace),
    "folder of secrets": (".aws", "dotfiles", lambda top: JailPolicy(write=[top])),
    "secret that is only read": (
        "work/.env",
        "../dotfiles/prod",
        lambda top: JailPolicy(read=[top], write=[top / "work"]),
    ),
    "pattern": (
        "x.cred",
        "dotfiles/prod",
        lambda top: JailPolicy(write=[top], deny=[f"{top}/**/*.cred"]),
    ),
    "below folders": ("a/b/.env", "../../dotfiles/prod", lambda top: JailPolicy(write=[top])),
    "absolute": (".env", "{}/dotfiles/prod", lambda top: JailPolicy(write=[top])),
}
"""A link, where it leads, and the policy of the folder above both."""

ERRNO_OF = """
def errno_of(call, *names):
    try: call(*names)
    except OSError as error: return error.errno
    return 0
"""

ACTS = (
    ERRNO_OF
    + """
top, link, secret = {top!r}, {link!r}, {secret!r}
there = os.path.exists(link)
read = errno_of(lambda: open(secret).read())
other, moved = top + "/work/other", top + "/work/moved"
open(other, "w").close()
found = [
    call("renameat2", -100, other.encode(), -100, link.encode(), 2),
    errno_of(os.rename, link, moved),
    errno_of(os.rename, other, link),
    errno_of(os.unlink, link),
]
above = os.path.dirname(link)
if above != top: found.append(errno_of(os.rename, above, above + "-moved"))
answer([found, there, read])
"""
)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return a folder with a secret that has no name of one."""
    for name in ("dotfiles", "work", "a/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "dotfiles/prod").write_text("TOKEN=1")
    return tmp_path


@pytest.mark.parametrize("scene", SCENES)
def test_a_link_that_hides_something_stays(top: Path, scene: str) -> None:
    """No guest may move the link by which the next jail finds what it has to hide."""
    name, target, policy = SCENES[scene]
    link = top / name
    link.symlink_to(target.format(top))
    text = ACTS.format(top=str(top), link=str(link), secret=str(top / "dotfiles/prod"))
    held = [errno.EBUSY] * 4
    if link.parent != top:
        held.append(errno.EROFS if link.parent.name == "work" else errno.EBUSY)
    for _ in range(2):
        with Jail(policy(top)) as jail:
            # The link leads where it did, and what is there is hidden.
            assert inside(jail, text) == [held, True, errno.EACCES]
            moves = [each for each in jail.report.canaries if each.name == f"move {link}"]
            assert [(each.held, each.errno) for each in moves] == [(True, errno.EBUSY)]
            assert jail.report.mechanisms(f"protected {link}")
    assert outside(text) == [[0] * len(held), True, 0]


def test_each_link_of_a_chain_stays(top: Path) -> None:
    """What leads on to another link must stay as that does, where guests may write."""
    (top / ".env").symlink_to("work/next")
    (top / "work/next").symlink_to("../dotfiles/prod")
    text = "answer([errno_of(os.unlink, name) for name in (TOP + '/.env', TOP + '/work/next')])"
    text = f"TOP = {str(top)!r}\n" + ERRNO_OF + text
    with Jail(JailPolicy(write=[top])) as jail:
        assert inside(jail, text) == [errno.EBUSY, errno.EBUSY]
    assert outside(text) == [0, 0]


def test_a_link_that_hides_nothing_is_the_guests(top: Path) -> None:
    """A link that leads to nothing, or out of the grants, is a name like any other."""
    (top / "work/.env").symlink_to("absent")
    (top / ".env").symlink_to("/etc/hostname")
    text = f"TOP = {str(top)!r}\n" + ERRNO_OF
    text += "answer([errno_of(os.unlink, TOP + name) for name in ('/.env', '/work/.env')])"
    with Jail(JailPolicy(write=[top])) as jail:
        assert inside(jail, text) == [0, 0]


@pytest.mark.parametrize("backend", backends("bubblewrap", "landlock"))
def test_no_other_back_end_takes_such_a_link(top: Path, backend: str) -> None:
    """Where no mount keeps a link, the policy must be refused."""
    (top / "work/.env").symlink_to("../dotfiles/prod")
    rules = {"read": [top / "dotfiles"], "write": [top / "work"]}
    with pytest.raises(PolicyUnsupported, match=r"\.env|dotfiles/prod"):
        jail_by(backend, **rules)
    (top / "work/.env").unlink()
    jail_by(backend, **rules).close()  # the control: without the link it opens


PLANTED = {
    "a second name of what a link leads to": (
        ": > notes; ln -s notes .env; ln notes a",
        ".env",
        ["notes", "a"],
    ),
    "a key by a link": (": > data; ln -s data server.key", "server.key", ["data"]),
    "a second name in a secret folder": (
        "mkdir .aws; : > .aws/credentials; ln .aws/credentials b",
        ".aws/credentials",
        ["b"],
    ),
    "a link in a secret folder": (
        "mkdir .aws; : > c; ln -s ../c .aws/credentials",
        ".aws/credentials",
        ["c"],
    ),
    "a second name of a secret": (": > .npmrc; ln .npmrc d", ".npmrc", ["d"]),
}
"""What a guest does, by which name the host writes its secret then, and what shows it."""


@pytest.mark.parametrize("plan", PLANTED)
def test_no_name_that_a_guest_plants_shows_a_secret(workspace: Path, plan: str) -> None:
    """What the host writes by a secret name must be hidden under all others that lead to it."""
    script, secret, names = PLANTED[plan]
    with Jail(JailPolicy(write=[workspace])) as jail:
        jail.run(["sh", "-c", f"cd '{workspace}' && {script}"], check=True)
    with (workspace / secret).open("a") as file:
        file.write("-----BEGIN PRIVATE KEY-----\n")
    text = f"TOP = {str(workspace)!r}\n" + ERRNO_OF
    text += f"names = {[secret, *names]!r}\n"
    text += "answer([errno_of(lambda: open(TOP + '/' + name).read()) for name in names])"
    policy = JailPolicy(write=[workspace])
    with Jail(policy) as jail:
        assert inside(jail, text) == [errno.EACCES] * (1 + len(names))
    assert not policy.why("read", workspace / secret)
    assert outside(text) == [0] * (1 + len(names))

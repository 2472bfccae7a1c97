"""A guest by the Python interface of the installed package: what is in the guide, in small."""

from __future__ import annotations

import sys

import visruntime as vr

folder, guest = sys.argv[1:]
with vr.WindowsJail(folder) as jail:
    jail.stage({"guest.exe": guest})
    with jail.spawn([jail.app + "\\guest.exe", "echo", "a b"]) as process:
        output, _ = process.communicate(timeout=60)
        code = process.wait().exit_code
assert output.splitlines() == [b"[a b]"], output
assert code == 0, code
print("the package runs a guest")

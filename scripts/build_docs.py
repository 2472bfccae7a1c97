#!/usr/bin/env python3
"""Build the documentation site, without network, and look at every link of it.

    uv run python scripts/build_docs.py [--out build/site] [--records FOLDER] [--archive FOLDER]

Warnings are errors: a link that leads nowhere, a name that is not described, a page in no menu.
``--records`` adds records of runs (scripts/record_run.py) to those that are committed, on the page of
platforms. ``--archive`` packs the site into one file there, always with the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from website import links

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent


def build(source: Path, out: Path, variables: Mapping[str, str]) -> int:
    """Let Sphinx make the site of the repository *source* in *out*; its exit code."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet"]
        command += ["--fail-on-warning", "--keep-going", "--nitpicky", "--jobs", "2"]
        command += ["--conf-dir", str(ROOT / "doc" / "site"), "--doctree-dir", cache]
        command += [str(source), str(out)]
        return subprocess.run(command, check=False, env=os.environ | variables).returncode


def archive(site: Path, target: Path, top: str) -> None:
    """Pack *site* below a folder *top*; names, modes and times say nothing of the machine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as file:
        for path in sorted(p for p in site.rglob("*") if p.is_file()):
            data = path.read_bytes()
            entry = tarfile.TarInfo(f"{top}/{path.relative_to(site).as_posix()}")
            entry.size, entry.mode = len(data), 0o644
            file.addfile(entry, io.BytesIO(data))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def main() -> int:
    """Build into a folder that is made anew; 1 if there is anything wrong with it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="a folder")
    parser.add_argument("--records", type=Path, help="a folder with more records")
    parser.add_argument("--archive", type=Path, help="a folder for the packed site")
    options = parser.parse_args()
    out = options.out.resolve()
    variables = {"VIS_RECORDS": str(options.records.resolve())} if options.records else {}
    if out.exists():
        if not (out / "objects.inv").is_file() and any(out.iterdir()):
            parser.error(f"{out} holds something else than a site")
        shutil.rmtree(out)
    if build(ROOT, out, variables):
        return 1
    found = links.problems(out)
    print("\n".join(found) if found else f"{len(list(out.rglob('*.html')))} pages in {out}")
    if options.archive and not found:
        name = f"visruntime-{version('visruntime')}-docs"
        archive(out, options.archive / f"{name}.tar.gz", name)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

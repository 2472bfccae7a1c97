#!/usr/bin/env python3
"""Say whether a release may happen: the tag, what the workflows block, and which assets there are.

    scripts/release_check.py --tag v1.2.0 [--built FOLDER --assets FOLDER]

Without ``--built`` it compares the tag with version and changelog, and proves from the workflow
files that publication needs every check and that none of them can be left out. With it, it
gathers the assets from what the workflows built, refuses a set that is not whole, and writes sizes
and digests.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
RUNNERS = {
    "ci": {"test": ["ubuntu-22.04", "ubuntu-24.04"]},
    "macos": {"seatbelt": ["macos-15", "macos-15-intel", "macos-26"]},
    "windows": {
        "jail": ["windows-2022", "windows-2025"],
        "archive": ["windows-2022", "windows-2025"],
    },
    "wheels": {
        "linux": ["ubuntu-22.04", "ubuntu-22.04-arm"],
        "other": ["macos-15-intel", "macos-15", "windows-2022"],
    },
}
"""Where each has to build and test; a platform that is taken out has to be taken out here."""
ASSETS = (
    "visruntime-{v}.tar.gz",
    "visruntime-{v}-cp311-abi3-manylinux_2_35_x86_64.whl",
    "visruntime-{v}-cp311-abi3-manylinux_2_35_aarch64.whl",
    "visruntime-{v}-cp311-abi3-macosx_12_0_x86_64.whl",
    "visruntime-{v}-cp311-abi3-macosx_12_0_arm64.whl",
    "visruntime-{v}-cp311-abi3-win_amd64.whl",
    "visruntime-{v}-linux-x86_64.tar.gz",
    "visruntime-{v}-linux-aarch64.tar.gz",
    "visruntime-{v}-docs.tar.gz",
)
"""What a release consists of, beside sizes and digests."""
CONDITIONS = {
    ("ci", "Let ordinary users make user namespaces"): "matrix.os == 'ubuntu-24.04'",
}
"""The only steps that may be left out, and when they are not."""
_GET_UV = "pip install --require-hashes -r scripts/uv.txt"
_UV = f"{_GET_UV} uv run --frozen --isolated --only-group"
_PACKAGING = "uv run --frozen --isolated --only-group packaging"
_COMPILE = f'{_PACKAGING} scripts/build_python.py --out "$RUNNER_TEMP/python"'
_PACK = (
    f"{_PACKAGING} scripts/pack_archive.py "
    '--wheel dist/*.whl --python "$RUNNER_TEMP/python" --out dist'
)
_RELEASE_CHECK = f'{_UV} lint scripts/release_check.py --tag "$GITHUB_REF_NAME"'
_ON_WINDOWS = "python tests/windows/on_windows.py"
WINDOWS = (
    "build",
    "table",
    "probe token derived",
    "probe exact",
    "probe descriptors",
    "probe copies sources odd-sources",
    "probe staged-files",
    "probe own-files package-folder",
    "probe other-files",
    "probe registry",
    "probe descendants no-children break-away",
    "probe ends host-dies",
    "probe limits",
    "in-job probe exact",
    "probe handles libraries",
    "probe local-sockets socket-bound",
    "probe pour round-trip pipe-pressure",
    "probe console whole-console marks console-pressure",
    "probe desktop clipboard",
    "probe network",
    "probe services",
    "probe null-device",
    "probe waits-for-streams abandoned-output second-close leaves-no-handle",
    "probe closed-folders",
    "faults",
    "probe close-at-once",
    "session0",
    "python",
    "package",
    "runtime",
    "extracted",
    "parts parts",
)
"""The probes of WindowsJail, as its workflow runs them."""
_MACOS = 'python scripts/build_macos.py build/macos --compiler cc --machine "$(uname -m)"'
_ON_A_MAC = " ".join(
    f"tests/macos/test_{name}.py"
    for name in ("profile", "seatbelt_model", "seatbelt_backend", "macho_gate")
)
_TESTED = "uv run --frozen --no-default-groups --group test"
RUNS = {
    ("windows", "jail"): [f"{_ON_WINDOWS} {words}" for words in WINDOWS],
    ("windows", "pack"): [
        (
            "python3 scripts/pack_archive.py --wheel parts/*.whl --parts parts/parts "
            "--platform windows-x64 --out packed"
        )
    ],
    ("windows", "archive"): [f"{_ON_WINDOWS} build", f"{_ON_WINDOWS} archive packed"],
    ("ci", "test"): ['sudo --set-home VIS_RECORD="$PWD/record.json" .ci/run'],
    ("macos", "seatbelt"): [
        _MACOS,
        f"{_MACOS} --test",
        "python tests/seatbelt_on_macos.py build/macos",
        f"{_TESTED} pytest {_ON_A_MAC}",
        f"{_TESTED} python tests/seatbelt_jail_on_macos.py build/macos",
    ],
    ("docs", "site"): [
        (
            f"{_GET_UV} mkdir -p records uv run --frozen python scripts/build_docs.py "
            "--records records --archive dist"
        )
    ],
    ("wheels", "linux"): [
        f"{_UV} packaging scripts/build_wheel.py --out dist",
        _COMPILE,
        _PACK,
        (
            'sudo --set-home --preserve-env=VIS_FULL VIS_RECORD="$PWD/record.json" '
            'VIS_DIST="$PWD/dist" .ci/run'
        ),
    ],
    ("wheels", "other"): [
        _GET_UV,
        "uv run --frozen --isolated --only-group cibuildwheel cibuildwheel --output-dir dist",
    ],
    ("release", "tag"): [_RELEASE_CHECK],
    ("release", "assets"): [f"{_RELEASE_CHECK} --built built --assets assets"],
    ("release", "publish"): ["sha256sum --check --strict SHA256SUMS"],
}
"""What these jobs have to do, word by word and in this order."""
_PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}|\$/\.github/workflows/[\w-]+\.yml")
_UNPINNED = re.compile(r"pip3? install (?!--require-hashes )")
_ONE_COMMAND = re.compile(r"[\w ./:=+-]*")
"""Words that PowerShell and every other shell read alike. Of several commands PowerShell goes on after
one that failed, and a step's outcome is then that of the last; quotes, variables and patterns mean
something else to it. It has no other scripts here, so that this is its lint."""
_WRITING = {"publish": {"contents", "id-token"}, "assets": {"id-token", "attestations"}}
_GIVES_UP = re.compile(r"\|\|\s*(true|:)|set \+e|continue-on-error|--exit-zero|\bexit 0\b")


def problems_of_tag(tag: str, root: Path = ROOT) -> list[str]:
    """Return why *tag* is not the release that the repository describes."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    found = []
    if tag != f"v{version}":
        found.append(f"the tag {tag} is not v{version}, the version of pyproject.toml")
    if re.search(r"\.dev|\+", version):
        found.append(f"{version} is a version of development")
    if f"\n## [{version}] - " not in (root / "CHANGELOG.md").read_text():
        found.append(f"CHANGELOG.md has no section [{version}]")
    return found


def problems_of_workflows(folder: Path = WORKFLOWS) -> list[str]:
    """Return what the workflow files would let through."""
    loaded = {path.stem: YAML(typ="safe").load(path) for path in sorted(folder.glob("*.yml"))}
    found = []
    for name, workflow in loaded.items():
        found += [f"{name}.yml: {problem}" for problem in _of_any(name, workflow)]
        found += [f"{name}.yml: {problem}" for problem in _of_matrices(name, workflow)]
        found += [f"{name}.yml: {problem}" for problem in _of_runs(name, workflow)]
    for name, check in (
        ("release", _of_release),
        ("wheels", _of_wheels),
        ("ci", _of_called),
        ("macos", _of_called),
        ("docs", _of_called),
        ("windows", _of_called),
    ):
        if name in loaded:
            found += [f"{name}.yml: {problem}" for problem in check(loaded[name])]
        else:
            found.append(f"{name}.yml: is missing")
    return found


def _of_any(name: str, workflow: dict[str, Any]) -> list[str]:
    """No permission by default, nothing that floats, and no check that may fail or be left out."""
    found = []
    if workflow.get("permissions") != {}:
        found.append("gives permissions to every job")
    if "defaults" in workflow:
        found.append("runs its steps in another shell or folder")
    for job, body in workflow["jobs"].items():
        found += [
            f"{job} has {key!r}: a check that is skipped or may fail blocks nothing"
            for key in ("if", "continue-on-error", "defaults")
            if key in body
        ]
        writing = {k for k, v in body.get("permissions", {}).items() if v == "write"}
        if writing - _WRITING.get(job, set()):
            found.append(f"{job} may write {', '.join(sorted(writing))}")
        for step in [*body.get("steps", []), *([body] if "uses" in body else [])]:
            label = step.get("name", job)
            if "uses" in step and _PINNED.fullmatch(step["uses"]) is None:
                found.append(f"{label!r} uses {step['uses']}, which is not pinned by a hash")
            if "continue-on-error" in step or _GIVES_UP.search(step.get("run", "")):
                found.append(f"{label!r} may fail unseen")
            if step.get("if") != CONDITIONS.get((name, label)):
                found.append(f"{label!r} may be skipped")
            if _UNPINNED.search(step.get("run", "")):
                found.append(f"{label!r} installs something that no hash pins")
            if "shell" in step:
                found.append(f"{label!r} runs in a shell of its own")
            if _on_windows(body) and not _ONE_COMMAND.fullmatch(step.get("run", "").strip()):
                found.append(f"{label!r} is more than one plain command, and PowerShell runs it")
    return found


def _on_windows(job: dict[str, Any]) -> bool:
    """Return whether a job runs on Windows, on one of its machines at least."""
    machines = job.get("strategy", {}).get("matrix", {}).get("os", [job.get("runs-on", "")])
    return any("windows" in str(each) for each in machines)


def _of_matrices(name: str, workflow: dict[str, Any]) -> list[str]:
    """Each job that builds or tests does so on the machines that it has to, and on no others."""
    found = []
    for job, runners in RUNNERS.get(name, {}).items():
        body = workflow["jobs"].get(job, {})
        matrix = body.get("strategy", {}).get("matrix", {})
        absent = [each for each in runners if each not in matrix.get("os", [])]
        found += [f"{job} does not build on {runner}" for runner in absent]
        if set(matrix) != {"os"} or body.get("runs-on") != "${{ matrix.os }}":
            found.append(f"{job} builds on other machines than it lists")
    return found


def _of_runs(name: str, workflow: dict[str, Any]) -> list[str]:
    """Each job that blocks something does it, and not something that only looks like it."""
    found = []
    for (_, job), wanted in (each for each in RUNS.items() if each[0][0] == name):
        steps = workflow["jobs"].get(job, {}).get("steps", [])
        runs = [" ".join(step.get("run", "").replace("\\\n", " ").split()) for step in steps]
        missing = [each for each in wanted if each not in runs]
        found += [f"{job} does not run {each}" for each in missing]
        places = [runs.index(each) for each in wanted if each in runs]
        if places != sorted(places):
            found.append(f"{job} does not build, pack and then test what it built")
    return found


def _of_release(workflow: dict[str, Any]) -> list[str]:
    found = []
    if set(workflow["on"]) != {"push"}:
        found.append("is started by something else than a tag")
    elif workflow["on"]["push"] != {"tags": ["v[0-9]*"]}:
        found.append("is started by something else than a tag of a version")
    if workflow.get("concurrency", {}).get("cancel-in-progress") is not False:
        found.append("may be cancelled by another run")
    jobs = workflow["jobs"]
    wanted = {
        "tag": (set(), None),
        "ci": ({"tag"}, "$/.github/workflows/ci.yml"),
        "wheels": ({"tag"}, "$/.github/workflows/wheels.yml"),
        "macos": ({"tag"}, "$/.github/workflows/macos.yml"),
        "windows": ({"tag"}, "$/.github/workflows/windows.yml"),
        "docs": ({"tag", "ci", "wheels"}, "$/.github/workflows/docs.yml"),
        "assets": ({"tag", "ci", "wheels", "docs"}, None),
        "publish": ({"tag", "ci", "wheels", "macos", "windows", "docs", "assets"}, None),
    }
    for job, (needs, called) in wanted.items():
        body = jobs.get(job)
        if body is None:
            found.append(f"{job} is missing")
            continue
        missing = needs - set(body.get("needs", []))
        if missing:
            found.append(f"{job} does not wait for {', '.join(sorted(missing))}")
        if body.get("uses") != called:
            found.append(f"{job} does not run {called}")
    publishing = jobs.get("publish", {})
    if publishing.get("environment") != "release":
        found.append("publish needs nobody's approval")
    publishers = re.compile(r"uv publish|twine upload|gh release (create|upload|edit|delete)")
    for job, body in jobs.items():
        for step in body.get("steps", []):
            if job != "publish" and publishers.search(step.get("run", "")):
                found.append(f"{job} publishes, and only publish may")
            if re.search(
                r"git push|--clobber|gh release (edit|delete|upload)", step.get("run", "")
            ):
                found.append(f"{job} changes a release or a tag that is there already")
    return found


def _of_wheels(workflow: dict[str, Any]) -> list[str]:
    found = _of_called(workflow)
    steps = workflow["jobs"].get("linux", {}).get("steps", [])
    if not steps or "upload-artifact" not in steps[-1].get("uses", ""):
        found.append("linux does not keep last what it tested")
    return found


def _of_called(workflow: dict[str, Any]) -> list[str]:
    return [] if "workflow_call" in workflow["on"] else ["cannot be called by a release"]


def gather(built: Path, assets: Path, version: str) -> list[str]:
    """Copy the assets of *version* from *built* to *assets*, with SHA256SUMS and SIZES.

    Folders ``record-*`` hold what the documentation was made from, and ``trial-*`` what jobs of one
    workflow hand each other to be tried; neither are assets.

    Returns:
        What is missing, twice with other bytes, empty or not expected; then nothing is copied.
    """
    expected = {each.format(v=version) for each in ASSETS}
    there: dict[str, Path] = {}
    found = []
    for path in sorted(p for p in built.rglob("*") if p.is_file()):
        if path.relative_to(built).parts[0].startswith(("record-", "trial-")):
            continue
        known = there.setdefault(path.name, path)
        if known.read_bytes() != path.read_bytes():
            found.append(f"{path.name} was built twice, with other bytes")
    found += [f"{name} is missing" for name in sorted(expected - there.keys())]
    found += [f"{name} is not expected" for name in sorted(there.keys() - expected)]
    found += [f"{name} is empty" for name, path in there.items() if not path.stat().st_size]
    if found:
        return found
    assets.mkdir(parents=True)
    sums, sizes = [], []
    for name in sorted(expected):
        shutil.copyfile(there[name], assets / name)
        data = (assets / name).read_bytes()
        sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
        sizes.append(f"{len(data)}  {name}\n")
    (assets / "SHA256SUMS").write_text("".join(sums))
    (assets / "SIZES").write_text("".join(sizes))
    return []


def main() -> int:
    """Print what stands against the release; 1 if there is something."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tag", required=True)
    parser.add_argument("--built", type=Path)
    parser.add_argument("--assets", type=Path)
    options = parser.parse_args()
    if (options.built is None) != (options.assets is None):
        parser.error("--built and --assets go together")
    found = [*problems_of_tag(options.tag), *problems_of_workflows()]
    if not found and options.built is not None:
        found = gather(options.built, options.assets, options.tag.removeprefix("v"))
    print("\n".join(found) if found else f"{options.tag}: nothing stands against it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

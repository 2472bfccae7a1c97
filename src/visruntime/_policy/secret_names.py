"""Names of files that hold secrets, and why each is on the list.

Inside a grant they are hidden from the guest, unless the policy reveals one path. The list
is data: `native/visjail/secret_names.c` compares, so that the search of a jail that opens and
`JailPolicy.why` cannot disagree. A name with one ``/`` names the folder that it lies in too.
"""

from __future__ import annotations

import errno
import os
import sys

from visruntime import _native
from visruntime._policy.looks import may_be_folder
from visruntime._policy.paths import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NAMES", "hidden_at", "lifts", "table"]

NAMES = (
    # Folders: all that is in them.
    ("folder", ".ssh", "keys and hosts of SSH"),
    ("folder", ".gnupg", "keys of GnuPG"),
    ("folder", ".aws", "credentials of Amazon's cloud"),
    ("folder", ".azure", "credentials of Microsoft's cloud"),
    ("folder", ".config/gcloud", "credentials of Google's cloud"),
    ("folder", ".oci", "credentials of Oracle's cloud"),
    ("folder", ".kube", "credentials of Kubernetes clusters"),
    ("folder", ".password-store", "passwords of pass"),
    ("folder", ".subversion/auth", "passwords of Subversion"),
    ("folder", ".tsh", "keys of Teleport"),
    ("folder", ".step/secrets", "keys of a certificate authority"),
    ("folder", ".bitcoin/wallets", "wallet"),
    ("folder", ".electrum/wallets", "wallet"),
    ("folder", ".ethereum/keystore", "wallet"),
    ("folder", "share/keyrings", "keyring of the desktop"),
    ("folder", "share/kwalletd", "keyring of the desktop"),
    # Files, by their whole name.
    ("file", ".npmrc", "tokens of npm"),
    ("file", ".pypirc", "tokens of the Python package index"),
    ("file", ".netrc", "passwords by host"),
    ("file", "_netrc", "passwords by host"),
    ("file", ".git-credentials", "passwords of git"),
    ("file", "git/credentials", "passwords of git"),
    ("file", ".pgpass", "passwords of PostgreSQL"),
    ("file", ".my.cnf", "passwords of MySQL"),
    ("file", ".mylogin.cnf", "passwords of MySQL"),
    ("file", ".dockercfg", "passwords of container registries"),
    ("file", ".docker/config.json", "passwords of container registries"),
    ("file", "containers/auth.json", "passwords of container registries"),
    ("file", ".cargo/credentials", "tokens of crates.io"),
    ("file", ".cargo/credentials.toml", "tokens of crates.io"),
    ("file", ".gem/credentials", "tokens of RubyGems"),
    ("file", ".m2/settings.xml", "passwords of Maven repositories"),
    ("file", ".m2/settings-security.xml", "passwords of Maven repositories"),
    ("file", ".gradle/gradle.properties", "passwords of Gradle repositories"),
    ("file", ".terraform.d/credentials.tfrc.json", "tokens of Terraform"),
    ("file", ".terraformrc", "tokens of Terraform"),
    ("file", ".vault-token", "token of Vault"),
    ("file", ".s3cfg", "credentials of S3"),
    ("file", ".boto", "credentials of cloud storage"),
    ("file", "gh/hosts.yml", "tokens of the GitHub command line"),
    ("file", ".config/hub", "tokens of the GitHub command line"),
    ("file", "glab-cli/config.yml", "tokens of the GitLab command line"),
    ("file", "rclone/rclone.conf", "passwords of rclone"),
    ("file", ".claude/.credentials.json", "tokens of a coding agent"),
    ("file", ".codex/auth.json", "tokens of a coding agent"),
    ("file", ".gemini/oauth_creds.json", "tokens of a coding agent"),
    ("file", "opencode/auth.json", "tokens of a coding agent"),
    ("file", "github-copilot/apps.json", "tokens of a coding agent"),
    ("file", "github-copilot/hosts.json", "tokens of a coding agent"),
    ("file", "huggingface/stored_tokens", "tokens of Hugging Face"),
    ("file", "huggingface/token", "tokens of Hugging Face"),
    ("file", ".kaggle/kaggle.json", "tokens of Kaggle"),
    ("file", "composer/auth.json", "passwords of Composer"),
    ("file", "configstore/firebase-tools.json", "tokens of Firebase"),
    ("file", ".databrickscfg", "tokens of Databricks"),
    ("file", "doctl/config.yaml", "tokens of DigitalOcean"),
    ("file", ".fly/config.yml", "tokens of Fly"),
    ("file", "helm/registry.json", "passwords of container registries"),
    ("file", "netlify/config.json", "tokens of Netlify"),
    ("file", "ngrok/ngrok.yml", "tokens of ngrok"),
    ("file", ".pulumi/credentials.json", "tokens of Pulumi"),
    ("file", ".sentryclirc", "tokens of Sentry"),
    ("file", ".streamlit/secrets.toml", "secrets of Streamlit"),
    ("file", ".vault_pass", "password of Ansible"),
    ("file", "age/keys.txt", "keys of age and sops"),
    ("file", ".authinfo", "passwords by host"),
    ("file", ".authinfo.gpg", "passwords by host"),
    ("file", ".fetchmailrc", "passwords of mail"),
    ("file", ".msmtprc", "passwords of mail"),
    ("file", "msmtp/config", "passwords of mail"),
    ("file", ".gitcookies", "passwords of git"),
    ("file", ".Xauthority", "access to the screen and the keyboard"),
    ("file", ".ICEauthority", "access to the session of the desktop"),
    ("file", "Cookies", "sessions of a browser"),
    ("file", "Login Data", "passwords of a browser"),
    ("file", "cookies.sqlite", "sessions of a browser"),
    ("file", "key4.db", "passwords of a browser"),
    ("file", "logins.json", "passwords of a browser"),
    ("file", "wallet.dat", "wallet"),
    ("file", "solana/id.json", "wallet"),
    ("file", "application_default_credentials.json", "credentials of Google's cloud"),
    ("file", "id_rsa", "private key of SSH"),
    ("file", "id_dsa", "private key of SSH"),
    ("file", "id_ecdsa", "private key of SSH"),
    ("file", "id_ecdsa_sk", "private key of SSH"),
    ("file", "id_ed25519", "private key of SSH"),
    ("file", "id_ed25519_sk", "private key of SSH"),
    ("file", "ssh/ssh_host_rsa_key", "private key of the SSH server"),
    ("file", "ssh/ssh_host_ecdsa_key", "private key of the SSH server"),
    ("file", "ssh/ssh_host_ed25519_key", "private key of the SSH server"),
    ("file", "etc/shadow", "passwords of the system's users"),
    ("file", "etc/gshadow", "passwords of the system's groups"),
    ("file", "etc/shadow-", "passwords of the system's users"),
    ("file", "etc/gshadow-", "passwords of the system's groups"),
    # Files, by the beginning or the end of their name; of ends the case does not matter.
    ("prefix", ".env", "environment file, where projects keep passwords"),
    ("suffix", ".tfstate", "state of Terraform, with the passwords that it made"),
    ("suffix", ".tfstate.backup", "state of Terraform, with the passwords that it made"),
    ("suffix", ".kdbx", "passwords of KeePass"),
    ("suffix", ".p12", "private key with its certificate"),
    ("suffix", ".pfx", "private key with its certificate"),
    ("suffix", ".jks", "key store of Java"),
    ("suffix", ".keystore", "key store of Java"),
    ("suffix", ".ppk", "private key of PuTTY"),
    # Only with the header of a private key: certifi and pip ship a cacert.pem.
    ("key", ".pem", "private key"),
    ("key", ".key", "private key"),
    # Templates of environment files, which are committed because nothing in them is secret.
    ("public", ".example", ""),
    ("public", ".sample", ""),
    ("public", ".template", ""),
    ("public", ".dist", ""),
    ("public", ".defaults", ""),
    ("public", ".schema", ""),
    # Installed code is no place for secrets, and its tests ship keys that protect nothing.
    ("installed", "site-packages", ""),
    ("installed", "dist-packages", ""),
    ("installed", "node_modules", ""),
    # The standard library of an interpreter, wherever that is installed.
    ("library", "lib/python3.", ""),
    ("library", "lib64/python3.", ""),
)
"""(kind, name, reason): what is compared, with what, and what such a file holds."""

_PARTS = ("bin", "include")
"""What the prefix of an interpreter has of installed code, beside its libraries."""

LETTERS = {
    "folder": b"d",
    "file": b"n",
    "prefix": b"p",
    "suffix": b"s",
    "key": b"k",
    "public": b"o",
    "installed": b"i",
    "library": b"l",
    "tree": b"t",
}
"""The kinds as `native/visjail/secret_names.h` has them."""

NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.EINVAL)
"""Answers to opening what is no file, or no more."""


def table() -> bytes:
    """Return the names as C takes them, and the folders of the host's interpreter."""
    # A prefix may be ~/.local and hold far more; libraries are known by name. That of a venv may be
    # a project, of which nothing but them is installed code.
    prefix = os.path.realpath(sys.base_prefix)
    entries = [(kind, name) for kind, name, _ in NAMES]
    if prefix not in ("/", "/usr", "/usr/local"):
        entries += [("tree", f"{prefix}/{name}") for name in _PARTS]
    return b"".join(LETTERS[kind] + os.fsencode(name) + b"\0" for kind, name in entries)


def hidden_at(
    names: bytes,
    path: str,
    reveal: Sequence[str],
    *,
    folder: bool | None = None,
    content: str | None = None,
) -> tuple[str, str] | None:
    """Return (path, reason) of the secret that *path* is or lies in, ``None`` for none.

    Args:
        names: what `table` returned.
        path: a real path; *folder* tells what it is, where the host is not to be asked.
        reveal: the paths that a policy lifts, as they really lead.
        content: the real path of the file whose content counts, if *path* is a link to it.
    """
    raw = os.fsencode(path)
    is_folder = may_be_folder(path) if folder is None else folder
    length = 0
    while True:
        entry, length, by_content = _native.find_secret(names, raw, after=length, folder=is_folder)
        if entry < 0 or (by_content and not _holds_key(content or path)):
            return None
        step = os.fsdecode(raw[:length])
        if not any(lifts(names, one, step, path) for one in reveal):
            return step, NAMES[entry][2]


def lifts(names: bytes, revealed: str, secret: str, path: str) -> bool:
    """Tell whether *revealed* shows *path*, which is *secret* or lies in it.

    It does where it is the secret itself, a path in it, or a secret folder around it.
    """
    if not is_within(path, revealed):
        return False
    return is_within(revealed, secret) or _is_secret_folder(names, revealed)


def _is_secret_folder(names: bytes, path: str) -> bool:
    raw = os.fsencode(path)
    above = os.path.dirname(raw)
    return _native.find_secret(names, raw, after=len(above), folder=True)[0] >= 0


def _holds_key(path: str) -> bool:
    """As the search in C: a file that cannot be read counts as a secret, and no link is followed.

    Between the look at where *path* leads and this one, a guest can have put a link there.
    """
    from visruntime._host.files import open_without_links

    try:
        file = open_without_links(path, os.O_RDONLY)
    except OSError as error:
        return error.errno not in NO_FILE
    try:
        return _native.is_private_key(os.read(file, _native.KEY_BYTES))
    except OSError:
        return True
    finally:
        os.close(file)

"""What `JailPolicy.workspace` keeps as it is, by an explicit list."""

from __future__ import annotations

__all__ = ["PROTECTED_NAMES"]

PROTECTED_NAMES = (
    # Version control: hooks, configuration, and what leads to another configuration. Git
    # takes both from the folder that .git/commondir names (gitrepository-layout(5)).
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".git/info/attributes",
    ".gitmodules",
    ".hg/hgrc",
    ".hg/hgrc-not-shared",
    ".hg/sharedpath",
    ".husky",
    ".lefthook.yml",
    "lefthook.yml",
    ".pre-commit-config.yaml",
    ".github/workflows",
    ".gitlab-ci.yml",
    # Shells and editors that run or obey what lies in a folder that is opened.
    ".envrc",
    ".vscode",
    ".idea",
    ".zed",
    ".devcontainer",
    ".devcontainer.json",
    ".dir-locals.el",
    ".exrc",
    ".nvim.lua",
    ".nvimrc",
    # Coding agents: permissions, hooks, servers to start.
    ".agents",
    ".aider.conf.yml",
    ".claude",
    ".codex",
    ".continue",
    ".cursor",
    ".gemini",
    ".mcp.json",
    ".windsurf",
    "visruntime.toml",
)
"""Names in a workspace that the host's tools run or obey.

`JailPolicy.workspace` denies writing them, whether they exist or not. Documents that agents
only read, such as AGENTS.md, are not among them: a guest's work may be to write them.
"""

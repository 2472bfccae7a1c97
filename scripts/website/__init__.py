"""Parts of the documentation site: pages that are made, menus, and the look at its links."""

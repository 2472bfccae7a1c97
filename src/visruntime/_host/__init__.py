"""Files and imports of the host that a guest may have had its hands in."""

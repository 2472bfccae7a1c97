"""Checks of what is shipped, in pure Python; each names the file and the rule that it breaks."""

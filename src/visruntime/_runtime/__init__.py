"""The parts of `visruntime.runtime`: its verbs, and one run from request to result."""

"""The parts of `visruntime.worker`: one Python process, from its start to its crash report."""

"""The parts of `visruntime.bundle`."""

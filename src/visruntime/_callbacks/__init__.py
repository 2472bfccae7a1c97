"""The parts of `visruntime.callbacks`: schemas, stubs, budgets and one call."""

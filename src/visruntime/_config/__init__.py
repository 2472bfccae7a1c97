"""The parts of `visruntime.config`: what a policy file costs to read, its lines, its Python table."""

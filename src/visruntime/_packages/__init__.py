"""The parts of `visruntime.packages`: environments that uv builds in a jail of their own."""

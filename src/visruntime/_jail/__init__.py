"""The parts of `visruntime.jail`: how one jail is planned, opened, used, measured and closed."""

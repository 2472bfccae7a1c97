"""Parts of `visruntime.windows`, one topic each."""

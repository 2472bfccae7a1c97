"""What a policy says and decides: paths, rules, patterns, links; nothing here writes."""

"""The rows of the table that scripts/bench.py prints, one file per topic."""

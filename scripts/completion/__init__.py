"""What is made from the parsers of the command line: completions of shells, and the manual page."""

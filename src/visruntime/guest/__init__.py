"""What runs inside workers: standard library only, no import from outside this package."""

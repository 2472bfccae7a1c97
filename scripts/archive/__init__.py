"""The parts of scripts/pack_archive.py, one file per topic."""

"""A package, so that its parts find each other also under `python -m tests.fuzz.parsers`."""

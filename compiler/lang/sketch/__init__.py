"""The language of sketches (`.sketch`)."""

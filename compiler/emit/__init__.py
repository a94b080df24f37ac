"""Plan → source text → directory. Python decides, `templates/` lays out."""

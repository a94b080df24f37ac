"""A language server for programs, jobs and clusters (`hccc lsp`), and what editors read besides."""

"""common: tables, prices and searches that several families of engines use."""

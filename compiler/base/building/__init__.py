"""C++ compiled once on this machine, and kept where only this user can write."""

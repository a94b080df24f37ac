"""C++ compiled on this machine, once, and kept where only this user can write."""

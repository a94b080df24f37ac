"""Support for projects that link generated libraries: CMake, pkg-config and setuptools."""

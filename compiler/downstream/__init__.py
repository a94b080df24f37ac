"""What projects that link generated libraries build them with: CMake, pkg-config, setuptools."""

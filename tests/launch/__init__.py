"""Tests of launching ranks."""

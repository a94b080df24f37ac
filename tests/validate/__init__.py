"""Tests of translation validation."""

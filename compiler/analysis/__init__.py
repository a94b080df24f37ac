"""Analyses: functions that read an IR and change none."""

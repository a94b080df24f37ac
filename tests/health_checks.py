"""Hypothesis's health checks that tests suppress when their examples take long to draw."""

from hypothesis import HealthCheck

# Each by its own value: to type checkers, iterating over the enum gives its metaclass's type.
EVERY_CHECK = [HealthCheck(check) for check in HealthCheck]

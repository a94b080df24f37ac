"""Hypothesis's health checks that tests suppress when their examples take long to draw."""

from hypothesis import HealthCheck

# Each by its own value: checkers take what iterating over the enum gives for its metaclass's.
EVERY_CHECK = [HealthCheck(check) for check in HealthCheck]

"""greedy: schedules filled step by step, and Programs of schedules."""

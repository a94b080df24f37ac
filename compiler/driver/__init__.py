"""driver: from what was given to proved Plans: inputs, options, passes in order, tuning."""

"""driver: from an input to proved Plans: inputs, options, passes in order, tuning."""

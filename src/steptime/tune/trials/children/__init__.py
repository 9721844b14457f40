"""Short contained children beside the trials: a bench, a count, a forecast, the products."""

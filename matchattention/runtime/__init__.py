"""How a network runs: one object, one word for each way."""

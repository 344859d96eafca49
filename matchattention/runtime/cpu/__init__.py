"""A network on a CPU: matrix products by oneDNN with what follows them in one call, and long rows for all the rest."""

"""The parts of the network, each a module of its own."""

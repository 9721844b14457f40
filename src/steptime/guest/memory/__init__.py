"""Who holds the memory of the process: parameters, states, graphs, and one step's storages."""

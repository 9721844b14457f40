"""What runs beside a command: samplers of the machine and its devices, and the watch for stalls."""

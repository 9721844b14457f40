"""What the commands do, as functions of values: nothing here prints or reads the command line."""

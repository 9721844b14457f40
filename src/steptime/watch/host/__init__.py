"""The machine and the processes of a running command, sampled from outside."""

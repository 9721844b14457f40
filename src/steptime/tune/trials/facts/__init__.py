"""What is known of the machine and the script before levers are chosen."""

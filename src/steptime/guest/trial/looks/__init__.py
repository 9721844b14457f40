"""What a trial learns of the script: its models, loaders, gradients, habits and places."""

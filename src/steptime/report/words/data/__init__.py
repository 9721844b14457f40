"""Words of the reports of loaders."""

"""The JSON documents of `--json`."""

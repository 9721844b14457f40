"""What libraries said while a command ran."""

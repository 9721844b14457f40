"""Paints blocks as Markdown, for a pull request or an agent."""

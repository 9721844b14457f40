"""What a report consists of: blocks made once, painted as text, HTML or Markdown."""

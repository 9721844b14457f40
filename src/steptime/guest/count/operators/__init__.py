"""Operators: their names, their work, their time, and the lines that call them."""

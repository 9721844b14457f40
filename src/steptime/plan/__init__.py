"""Computes by formulas how much work and memory a run needs, before there is one."""

"""Runs `steptime`, and waits in one of its functions until somebody writes to a pipe.

held.py PIPE MODULE FUNCTION WORD ...
"""

import importlib
import sys

from steptime.cli.main import main

pipe, module_name, name, *words = sys.argv[1:]
module = importlib.import_module(module_name)
real = getattr(module, name)


def wait_and_call(*arguments, **options):
    with open(pipe) as file:
        file.read()
    return real(*arguments, **options)


setattr(module, name, wait_and_call)
sys.exit(main(words))

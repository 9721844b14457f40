"""without_namespaces.py COMMAND...: becomes the command, which may make no user namespace.

So it is in most containers.
"""

import errno
import os
import sys

from steptime.isolate.guard.seccomp import Argument, CallRule, install, refuse
from steptime.isolate.kernel import CLONE_NEWUSER

if __name__ == "__main__":
    command = sys.argv[1:]
    new_user = (Argument(index=0, bits=CLONE_NEWUSER),)
    install(
        [
            CallRule(name="clone", action=refuse(errno.EPERM), arguments=new_user),
            CallRule(name="unshare", action=refuse(errno.EPERM), arguments=new_user),
            CallRule(name="clone3", action=refuse(errno.ENOSYS)),
        ]
    )
    os.execvp(command[0], command)

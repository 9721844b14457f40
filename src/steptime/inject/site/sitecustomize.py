# Lets Steptime's guest into this Python process, then gets out of the way.
#
# This folder stands first on PYTHONPATH and holds this file alone, so any Python of the
# machine reads it at start-up: keep it readable by Python 2.7 and harmless there. It chains
# to the sitecustomize it hides, takes its folder off sys.path (not off the environment, so
# that children get it too), and loads the guest once torch has been executed.
import os
import sys
import time

_PACKAGE = "_steptime"  # never `steptime`, which the script may import itself
_REDIRECT_NAME = "_steptime_redirect"
_SECRET = ("key", "token", "secret", "pass", "credential", "://", "hf_", "sk-", "gh", "glpat", "akia")
_SECRET += ("asia", "xox", "eyj")  # a command without any of these has no secret to hide
_MAX_PROCESSES_BYTES = 1 << 20  # a build that starts thousands of Pythons must not fill the disk


_TOLD = {}  # in a contained child, what stands in variables elsewhere


def _told(name):
    return _TOLD.get(name) or os.environ.get(name)


def _read_told():
    for folder in sys.path:
        path = os.path.join(folder, "told")
        if os.path.basename(folder) == "site" and os.path.exists(path):
            with open(path, "rb") as file:
                text = getattr(os, "fsdecode", str)(file.read())
            _TOLD.update(entry.split("=", 1) for entry in text.split("\0"))
    if "STEPTIME_RUN" in os.environ:  # of a run inside a contained child: its walls stay
        for name in [name for name in _TOLD if "REDIRECT" not in name]:
            del _TOLD[name]


def _ask_plan():
    """Return what this process is to do and, in a live trial, where in its memory that changes."""
    door = _told("STEPTIME_DOOR")
    if not door:
        return os.environ.get("STEPTIME_PLAN"), None
    import _socket

    text, descriptor = b"", None
    asker = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        asker.settimeout(10.0)
        asker.connect(door)
        data, handed = asker.recvmsg(1, 64)[:2]
        for _, _, packed in handed:
            descriptor = int.from_bytes(packed[:4], sys.byteorder)
        while data:
            data = asker.recv(1 << 16)
            text += data
    except OSError:
        pass  # a plan without an end cannot be read, and the guest says so
    asker.close()
    return text.decode("utf-8", "replace"), None if descriptor is None else _map(descriptor)


def _map(descriptor):
    """Map memory that is only read, and hold nothing of it open."""
    import ctypes

    try:
        call = ctypes.CDLL(None).mmap
        call.restype = ctypes.c_void_p
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        return call(None, os.fstat(descriptor).st_size, 1, 1, descriptor, 0)
    finally:
        os.close(descriptor)


def _quoted(text):
    """JSON string without importing json (2 ms in every Python process of the user's)."""
    safe = [c if " " <= c <= "~" and c not in '"\\' else "\\u%04x" % min(ord(c), 0xFFFD) for c in text]
    return '"%s"' % "".join(safe)


def _append(run, line):
    path = os.path.join(run, "processes.jsonl")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if os.fstat(fd).st_size < _MAX_PROCESSES_BYTES:
            os.write(fd, line.encode("ascii", "replace"))
    finally:
        os.close(fd)


def _words():
    """The command of this process, without what looks like a secret."""
    words = getattr(sys, "orig_argv", [])[:20]
    text = "\n".join(words).lower()
    if not any(sign in text for sign in _SECRET):
        return words
    try:
        folder = os.path.join(os.path.dirname(_told("STEPTIME_GUEST")), "record")
        own = _load("_steptime_hidden_words", os.path.join(folder, "hidden_words.py"))
        del sys.modules["_steptime_hidden_words"]
        return own.hide_words(words)
    except Exception:
        return words[:2]  # an interpreter and a script are no secret


def _announce(run, kind):
    version = "%d.%d.%d" % sys.version_info[:3]
    argv = ", ".join(_quoted(arg) for arg in _words())
    line = '{"k": "%s", "pid": %d, "ppid": %d, "python": "%s", "argv": [%s], "t": %.3f}\n'
    _append(run, line % (kind, os.getpid(), os.getppid(), version, argv, time.time()))


class _ImportTimes(object):
    """Times the outermost imports of the first thread, until the guest has seen a step.

    Python looks `_find_and_load` up in importlib for each module that is not loaded yet. Ours has
    its name and file name, so that warnings, tracebacks and Python itself take it for importlib's.
    """

    min_ns = 200 * 1000
    max_rows = 300

    def __init__(self):
        self.began_ns = time.perf_counter_ns()
        self.rows = []
        self.is_inside = False
        self.bootstrap = self.original = self.ours = None

    def start(self):
        import _thread

        clock, get_ident, take = time.perf_counter_ns, _thread.get_ident, self._take
        thread = get_ident()
        self.bootstrap = sys.modules["_frozen_importlib"]
        self.original = original = self.bootstrap._find_and_load

        def _find_and_load(name, import_):
            if self.is_inside or get_ident() != thread:
                return original(name, import_)
            self.is_inside = True
            began = clock()
            try:
                return original(name, import_)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next  # less this frame
                raise
            finally:
                self.is_inside = False
                take(name, began, clock())

        code = original.__code__
        _find_and_load.__code__ = _find_and_load.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
        )
        self.ours = self.bootstrap._find_and_load = _find_and_load

    def stop(self):
        """Put back what nobody has replaced since."""
        if self.bootstrap is not None and self.bootstrap._find_and_load is self.ours:
            self.bootstrap._find_and_load = self.original

    def _take(self, name, began, ended):
        if ended - began < self.min_ns or len(self.rows) >= self.max_rows:
            return
        try:
            self.rows.append((str(name), began, ended) + self._place(sys._getframe(2)))
        except Exception:
            pass  # the folder may be gone: this import is not known then

    def _place(self, frame):
        """The file and line that imports; None where it is not in a file.

        A library that imports late does so for a line outside of libraries, which is told.
        """
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename.startswith("<"):
            return None, None
        own = frame
        while own is not None and self._is_library(own.f_code.co_filename):
            own = own.f_back
        found = own or frame
        return os.path.abspath(found.f_code.co_filename), found.f_lineno

    def _is_library(self, file):
        """Whether it is an installed package's, Python's, a launcher beside it, or no file."""
        parts = file.split(os.sep)
        folders = [os.path.dirname(one) + os.sep for one in (os.__file__, sys.executable)]
        is_installed = "site-packages" in parts or "dist-packages" in parts
        return is_installed or file.startswith(("<",) + tuple(folders))


class _StepTimeFinder(object):
    """Calls back after a module has been executed; finds nothing by itself.

    It stays on sys.meta_path: libraries look for torch with find_spec long before they
    import it, so a finder that stepped aside after the first look would never fire.
    """

    def __init__(self):
        self.targets = {}
        self.looking = set()

    def find_spec(self, name, path=None, target=None):
        if name not in self.targets:
            return None
        import _thread

        key = (name, _thread.get_ident())
        if key in self.looking:
            return None
        self.looking.add(key)
        try:
            spec = self._ask_others(name, path, target)
        finally:
            self.looking.discard(key)
        if spec is not None and spec.loader is not None:
            self._call_after(name, spec.loader)
        return spec

    def _ask_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _call_after(self, name, loader):
        execute = loader.exec_module

        def exec_module(module):
            try:
                execute(module)
            except BaseException as error:
                if error.__traceback__ is not None:
                    error.__traceback__ = error.__traceback__.tb_next  # less this frame
                raise
            callback = self.targets.pop(name, None)
            try:
                del loader.exec_module
                if callback is not None:
                    callback(module)
            except Exception:
                pass  # our failure must not become the script's

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # an unusual loader: this process is not observed


def _load(name, path):
    """Execute a package of ours by its place, under a private name."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(
        name, path, submodule_search_locations=[os.path.dirname(path)]
    )
    package = module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return package


def _redirect(finder):
    """In a guarded trial: redirect what the script writes; what is left to do in torch."""
    folders, path = _told("STEPTIME_REDIRECT"), _told("STEPTIME_REDIRECT_FILE")
    if not folders or not path or sys.version_info < (3, 10):
        return None
    return _load(_REDIRECT_NAME, path).start(folders, finder.targets)


def _load_beside_the_record(folder):
    """Execute the guest in a package that holds nothing, so that it finds `..record`.

    The package has the place of `steptime`, whose own `__init__` is not executed.
    """
    known = sys.modules.get(_PACKAGE + "." + os.path.basename(folder))
    if known is not None:
        return known
    package = type(sys)(_PACKAGE)
    package.__path__ = [os.path.dirname(folder)]
    sys.modules[_PACKAGE] = package
    return _load(_PACKAGE + "." + os.path.basename(folder), os.path.join(folder, "__init__.py"))


def _load_guest(run, folder, finder, torch, imports, asked):
    try:
        guest = _load_beside_the_record(folder)
        guest.start(torch, run, finder.targets, imports, plan=asked[0], shown=asked[1])
    except Exception as error:
        line = '{"k": "torch", "pid": %d, "t": %.3f, "failed": %s}\n'
        _append(run, line % (os.getpid(), time.time(), _quoted(repr(error)[:200])))


def _time_imports():
    """Begin to time imports; None where Python is built otherwise."""
    try:
        times = _ImportTimes()
        times.start()
        return times
    except Exception:
        return None


def _seed(finder):
    """Seed random now; return what numpy and torch get once they are there."""
    text = _told("STEPTIME_SEED")
    if not text:
        return None
    import random

    seed = int(text)
    random.seed(seed)
    finder.targets["numpy"] = lambda numpy: numpy.random.seed(seed)
    return lambda torch: torch.manual_seed(seed)


def _enter():
    here = os.path.dirname(os.path.abspath(__file__))
    _read_told()
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here or p == ""]
    if any(type(finder).__name__ == _StepTimeFinder.__name__ for finder in sys.meta_path):
        return  # the same file in another folder was here before
    run, folder = _told("STEPTIME_RUN"), _told("STEPTIME_GUEST")
    finder = _StepTimeFinder()
    redirect = _redirect(finder)
    seed = _seed(finder)
    is_watched = bool(run and folder)
    if is_watched and sys.version_info < (3, 10):
        _announce(run, "old")
        return
    if is_watched:
        _announce(run, "start")
    if not is_watched and redirect is None and seed is None:
        return

    asked = _ask_plan() if is_watched else None
    imports = _time_imports() if is_watched else None

    def at_torch(torch):
        if seed is not None:
            seed(torch)
        if redirect is not None:
            redirect(torch)
        if is_watched:
            _load_guest(run, folder, finder, torch, imports, asked)

    def at_tf_data(module):
        from importlib import import_module

        guest = _load_beside_the_record(folder)
        import_module(guest.__name__ + ".tfdata.install").start_tf_data(module, run)

    finder.targets["torch"] = at_torch
    if is_watched and _told("STEPTIME_TFDATA"):  # a bench asks; a run does not
        finder.targets["tensorflow.python.data.ops.dataset_ops"] = at_tf_data
    sys.meta_path.insert(0, finder)


def _chain():
    """Run the sitecustomize we hide, as if we were not there."""
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours  # site expects to find what it imported


try:
    _enter()
except Exception:
    pass  # our failure must not become the script's
_chain()

"""Clear VERIFY_X509_STRICT, and nothing else, in every TLS context of one interpreter.

It runs in two places, for ``tls_strict=False`` only: in the worker, before any other code of the
guest, and as ``sitecustomize`` of the Pythons that the worker starts, which find its folder in
``PYTHONPATH``. Those can be of other versions, so it uses nothing that is newer than 3.6.

``ssl.SSLContext`` inherits from a class of the C module, and all that sets its flags ends
there: the standard library's setter, and truststore and gevent, which go around that setter
with ``super()``. So while ``ssl`` is imported the C class is replaced by a subclass whose
``verify_flags`` leave that one bit out. Nothing happens before: importing ssl takes longer than
starting a worker.
"""

import sys

STRICT = 0x20
"""X509_V_FLAG_X509_STRICT of OpenSSL's x509_vfy.h, which is ssl.VERIFY_X509_STRICT."""
BEFORE_SITE = "_visguest.lenient_tls"
"""Name of this module in a worker."""
AS_CUSTOMIZATION = "sitecustomize"
"""Name of this module in the Pythons that a worker starts."""


def lenient_class(native: type) -> type:
    """Return a subclass of the C module's context class that never sets the strict bit."""
    flags = native.verify_flags  # type: ignore[attr-defined]

    def set_flags(context: object, value: object) -> None:
        # As an int: the enum's own operators are for values that it knows.
        flags.__set__(context, int(value) & ~STRICT if isinstance(value, int) else value)

    members = {
        "__slots__": (),
        "__module__": native.__module__,
        "__doc__": native.__doc__,
        "verify_flags": property(flags.__get__, set_flags, None, flags.__doc__),
    }
    return type(native.__name__, (native,), members)


class Finder:
    """A meta path finder that changes how ``ssl`` is executed, each time that it is."""

    def __init__(self) -> None:
        # Python holds the import lock while it asks a finder, so this is never another thread's.
        self._asking = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Answer for ssl only, with what the other finders say."""
        if name != "ssl" or self._asking:
            return None
        self._asking = True
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = None if find is None else find(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = Loader(spec.loader)
                    return spec
        finally:
            self._asking = False
        return None


class Loader:
    """The real loader of ``ssl``, but for the class that the module finds in ``_ssl``."""

    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def create_module(self, spec: object) -> object:
        """Leave that to the real loader."""
        return self._real.create_module(spec)  # type: ignore[attr-defined]

    def exec_module(self, module: object) -> None:
        """Execute ssl above the lenient class; who imports _ssl itself gets the C class."""
        module.__loader__ = module.__spec__.loader = self._real  # type: ignore[attr-defined]
        try:
            import _ssl
        except ImportError:  # a Python without TLS: ssl says so itself
            _ssl = None  # type: ignore[assignment]
        native = getattr(_ssl, "_SSLContext", None)
        if native is None:
            self._real.exec_module(module)  # type: ignore[attr-defined]
            return
        _ssl._SSLContext = lenient_class(native)  # type: ignore[misc, assignment]
        try:
            self._real.exec_module(module)  # type: ignore[attr-defined]
        finally:
            _ssl._SSLContext = native  # type: ignore[misc]


def make_way() -> None:
    """Import the sitecustomize that this one hides, and leave no other trace on the path."""
    own = __file__.rpartition("/")[0]
    sys.path[:] = [entry for entry in sys.path if entry != own]
    hidden = sys.modules.pop(AS_CUSTOMIZATION)
    try:
        __import__(AS_CUSTOMIZATION)
    finally:
        sys.modules.setdefault(AS_CUSTOMIZATION, hidden)


if __name__ in (BEFORE_SITE, AS_CUSTOMIZATION):
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
if __name__ == AS_CUSTOMIZATION:
    make_way()

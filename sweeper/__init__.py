"""Sweep and tune CUDA kernels: every configuration proved right, timed honestly, and recorded.

    from sweeper import best, load_kernel, tune

Each is loaded when it is first asked for (`sweeper.api`), so that importing this package costs nothing.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sweeper.api import best as best
    from sweeper.api import load_kernel as load_kernel
    from sweeper.api import tune as tune

__all__ = ["__version__", "best", "load_kernel", "tune"]

__version__ = "0.1.0"

_LAZY = ("best", "load_kernel", "tune")


if not TYPE_CHECKING:

    class _Package(type(sys)):
        """This package as a module whose `tune` is the function, also once `sweeper.tune`, the loop, is imported:
        an import sets the attribute of that name to the subpackage.
        """

        @property
        def tune(self):
            if "tune" not in self.__dict__:
                self.__dict__["tune"] = _lazy("tune")
            return self.__dict__["tune"]

        @tune.setter
        def tune(self, value):
            if not isinstance(value, type(sys)):
                self.__dict__["tune"] = value

    def _lazy(name):
        from sweeper import api

        return getattr(api, name)

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = _lazy(name)
        return value

    def __dir__():
        return sorted({*globals(), *_LAZY})

    sys.modules[__name__].__class__ = _Package

"""Records the arrays that a forward pass of the reference makes, under names that say where: for trace.py.

    with Recorder(model) as recorder:
        with recorder.forward():
            model(ids, cache=cache)
    recorder.forwards[-1]           [(name, float32 array)], each value once, in order

MLX has no hooks, so what a model calls is replaced: __call__ of every class of module (inputs and outputs), the functions
of mlx.core, mlx.core.fast, mlx.nn and the model's own modules, and the operators of mx.array. Values are taken at once,
since += and assignment to slices change an array under its name. What happens inside a compiled function is not seen:
there the arrays are tracers; its inputs and outputs are.
"""

import contextlib
import functools
import sys
import types

import numpy as np

OPERATORS = ["add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "truediv", "rtruediv", "itruediv",
             "matmul", "imatmul", "pow", "rpow", "ipow", "neg", "getitem"]
METHODS = [f"__{name}__" for name in OPERATORS] + ["astype", "exp", "sum", "mean", "max", "square", "sqrt", "rsqrt", "split", "abs"]
SOURCES = ("mlx_lm.models", "mlx.nn")  # packages whose functions are replaced


class Recorder:
    def __init__(self, model):
        import mlx.core as mx

        self.mx = mx
        self.undo, self.forwards, self.names = [], [], {id(m): name for name, m in model.named_modules()}
        self.active, self.compiled, self.stack, self.wrapped = False, 0, [], {}
        self.astype, self.floating = mx.array.astype, mx.floating
        self.issubdtype = mx.issubdtype
        self.replace_modules(model)
        for space, prefix in ((mx, "mx."), (mx.fast, "mx.fast.")):
            self.replace_functions(space, prefix, lambda f: type(f).__name__ == "nb_func")
        for name, module in list(sys.modules.items()):
            if name.startswith(SOURCES):
                self.replace_functions(module, "", self.is_source)
        for name in METHODS:
            if hasattr(mx.array, name):
                self.replace(mx.array, name, self.wrap(getattr(mx.array, name), name))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for restore, name, f in reversed(self.undo):
            restore(name, f)

    def replace(self, owner, name, f):
        self.undo.append((functools.partial(setattr, owner), name, getattr(owner, name)))
        setattr(owner, name, f)

    @staticmethod
    def is_source(f):
        return type(f).__name__ == "gc_func" or (isinstance(f, types.FunctionType) and (f.__module__ or "").startswith(SOURCES))

    def once(self, f, label):
        """The replacement of a function, the same one wherever it is held."""
        return self.wrapped.setdefault(id(f), (f, self.wrap(f, label)))[1]

    def replace_functions(self, space, prefix, wanted):
        for name, f in list(vars(space).items()):
            if wanted(f):
                self.replace(space, name, self.once(f, prefix + name))
            elif type(f) is dict:  # activations by name
                for key, held in list(f.items()):
                    if wanted(held):
                        self.undo.append((f.__setitem__, key, held))
                        f[key] = self.once(held, f"{name}[{key!r}]")

    def replace_modules(self, model):
        owners = {next(c for c in type(m).__mro__ if "__call__" in vars(c)) for _, m in model.named_modules() if callable(m)}
        for owner in owners:
            self.replace(owner, "__call__", self.wrap_module(owner.__call__))
        for _, module in model.named_modules():
            for name, f in list(vars(module).items()):
                if self.is_source(f):  # an activation that it was given
                    self.replace(module, name, self.once(f, name))

    @contextlib.contextmanager
    def forward(self):
        self.values, self.seen, self.active = [], set(), True
        try:
            yield
        finally:
            self.active = False
            self.forwards.append(self.values)

    def note(self, label, value):
        if isinstance(value, (tuple, list)):
            for i, part in enumerate(value):
                self.note(f"{label}[{i}]" if len(value) > 1 else label, part)
        elif isinstance(value, self.mx.array) and self.issubdtype(value.dtype, self.floating):
            try:
                self.active = False
                array = np.array(self.astype(value, self.mx.float32))
            except (RuntimeError, ValueError):  # a tracer
                return
            finally:
                self.active = True
            key = (array.shape, array.tobytes())
            if key not in self.seen:
                self.seen.add(key)
                self.values.append((f"{self.stack[-1]}: {label}" if self.stack else label, array))

    def wrap(self, f, label):
        is_compiled = type(f).__name__ == "gc_func"

        @functools.wraps(f, updated=())
        def call(*args, **keys):
            if not self.active or self.compiled:
                return f(*args, **keys)
            self.compiled += is_compiled
            try:
                value = f(*args, **keys)
            finally:
                self.compiled -= is_compiled
            self.note(label, value)
            return value

        return call

    def wrap_module(self, f):
        @functools.wraps(f)
        def call(module, *args, **keys):
            if not self.active or self.compiled:
                return f(module, *args, **keys)
            self.stack.append(self.names.get(id(module), type(module).__name__) or "model")
            try:
                self.note("input", args)
                value = f(module, *args, **keys)
                self.note("output", value)
            finally:
                self.stack.pop()
            return value

        return call

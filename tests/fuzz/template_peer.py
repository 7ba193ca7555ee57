"""The template interpreter and its model side by side, for the scripts that compare them.

Ours is loaded from a shared object (first argument of load()); jinja2 3.1.6 is set up as transformers
5.24 sets it up (utils/chat_template_utils.py), from the same public facts and without transformers.
"""
import ctypes
import json

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @staticmethod
    def _support(caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(
                f"Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                f"got {name!r}. Please rename the attribute.")


Namespace.__module__ = "jinja2.utils"



def environment():
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: __import__("datetime").datetime.now().strftime(form)
    made.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)
    made.globals["namespace"] = Namespace
    return made


ENVIRONMENT = environment()


def theirs(source, context):
    """("text", rendered) or ("error", class name, message)."""
    try:
        return ("text", ENVIRONMENT.from_string(source).render(**context))
    except RecursionError:
        return ("error", "RecursionError", "")
    except Exception as error:  # whatever a template can raise
        return ("error", type(error).__name__, str(error))


class Limits(ctypes.Structure):
    _fields_ = [("steps", ctypes.c_uint64), ("output_bytes", ctypes.c_size_t),
                ("memory_bytes", ctypes.c_size_t), ("depth", ctypes.c_uint)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t),
                ("capacity", ctypes.c_size_t), ("failed", ctypes.c_bool)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 500)]


class Fault(ctypes.Structure):
    _fields_ = [("raised", ctypes.c_bool), ("line", ctypes.c_uint), ("kind", ctypes.c_char_p)]


class Variable(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("json", ctypes.c_char_p),
                ("json_length", ctypes.c_size_t), ("trusted", ctypes.c_bool)]


class Range(ctypes.Structure):
    _fields_ = [("start", ctypes.c_size_t), ("end", ctypes.c_size_t)]


class Ours:
    def __init__(self, shared_object, limits=None):
        self.lib = ctypes.CDLL(shared_object)
        self.lib.kvr_template_run_new.restype = ctypes.c_void_p
        self.lib.kvr_template_trace.restype = ctypes.POINTER(Range)
        self.run = ctypes.c_void_p(self.lib.kvr_template_run_new(
            ctypes.byref(limits) if limits else None, ctypes.c_int64(-1)))

    def compile(self, source):
        """A template, or the error's text."""
        template, error, raw = ctypes.c_void_p(), Error(), source.encode()
        if self.lib.kvr_template_compile(ctypes.byref(template), raw,
                                         ctypes.c_size_t(len(raw)), ctypes.byref(error)):
            return error.text.decode(errors="replace")
        return template

    def render_compiled(self, template, context, trusted=()):
        out, error, fault = Buffer(), Error(), Fault()
        variables = (Variable * max(1, len(context)))()
        for variable, (name, value) in zip(variables, context.items()):
            text = json.dumps(value).encode()
            variable.name, variable.json = name.encode(), text
            variable.json_length, variable.trusted = len(text), name in trusted
        status = self.lib.kvr_template_render(
            template, self.run, variables, ctypes.c_size_t(len(context)), ctypes.byref(out),
            ctypes.byref(fault), ctypes.byref(error))
        text = ctypes.string_at(out.data, out.length).decode() if out.data else ""
        self.lib.kvr_buffer_release(ctypes.byref(out))
        if status:
            message = error.text.decode(errors="replace")
            return ("error", fault.kind.decode(), message)
        return ("text", text)

    def pieces(self):
        """The byte ranges of the last rendering that are content."""
        count = ctypes.c_size_t()
        ranges = self.lib.kvr_template_trace(self.run, ctypes.byref(count))
        return [(ranges[i].start, ranges[i].end) for i in range(count.value)]

    def render(self, source, context, trusted=()):
        template = self.compile(source)
        if isinstance(template, str):
            return ("error", "compile", template)
        result = self.render_compiled(template, context, trusted)
        self.lib.kvr_template_free(template)
        return result

"""The parts of random programs: places that hold state, and statements; see ``programs.py``.

In a text ``@`` is the number of a place, ``$v`` a number, ``$w`` a word, ``$f`` a function of the library; in a
statement ``$e`` is a number that is read from some place, ``$b`` a condition.
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of place: where it is declared, and how it is read, changed between calls, and stored to by a call.

    ``module``, ``make``, ``of_class`` and ``init`` are lines of the module, of the function that makes the model, of
    its class and of its constructor. What only the module declares can be read by helpers of the module. ``rare`` are
    reads and stores that replays cannot repeat, or that are not compiled.
    """

    module: str = ""
    make: str = ""
    of_class: str = ""
    init: str = ""
    reads: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    rare_stores: tuple[str, ...] = ()

    @property
    def everywhere(self) -> bool:
        return not (self.make or self.of_class or self.init)


HOLDER = """class Holder@:
    '''Holds a number.'''
    shared = $v
    def __init__(self, k=$v):
        self.k, self.items = k, [1.0, k]
    @property
    def doubled(self):
        return self.k * 2
    @classmethod
    def of_class(cls):
        return cls.shared
    def scaled(self, h):
        return h * self.k
    def __call__(self, h):
        return F.tanh(h) * self.k
    def __str__(self):
        return f"{self.k}"
    def __len__(self):
        return len(self.items)
    def __bool__(self):
        return self.k > 1
    def __eq__(self, other):
        return isinstance(other, Holder@) and self.k == other.k
    def __hash__(self):
        return 1
    def __getitem__(self, i):
        return self.items[i]
    def __enter__(self):
        return self.k
    def __exit__(self, *exc):
        pass
"""


def _holder(name: str) -> Kind:
    """Return an object of a class of its own at ``name``; the place is declared by the caller."""
    return Kind(
        reads=(f"{name}.k", f"{name}.doubled", f"{name}.of_class()", f"{name}.shared", f"{name}[1]", f"len({name})",
               f"float(str({name}))", f"vars({name})['k']", f"getattr({name}, 'k')", f"sum({name}.items)",
               f"operator.attrgetter('k')({name})", f"float('%s' % {name})", f"[*{name}.items][0]",
               f"float(f'{{{name}}}')", f"type({name}).shared"),
        conditions=(f"{name}", f"{name} == Holder@($v)", f"isinstance({name}, Holder@)", f"hasattr({name}, 'late')",
                    f"1.5 in {name}.items"),
        functions=(f"{name}", f"{name}.scaled", f"(lambda h: {name}.scaled(h))", f"functools.partial({name}.scaled)"),
        changes=(f"{name}.k = $v", f"{name}.items[1] = $v", f"{name}.items.append($v)", "Holder@.shared = $v",
                 f"{name}.shared = $v", "Holder@.doubled = property(lambda self: self.k * $v)",
                 "Holder@.scaled = lambda self, h: $f(h) * self.k", f"{name}.scaled = $f", f"{name}.late = $v",
                 f"{name}.__dict__.pop('late', None)", "Holder@.__str__ = lambda self: '$v'"),
        stores=(f"{name}.seen = h", f"{name}.last = $e", f"{name}.mark = '$w'"),
        rare_stores=(f"{name}.k = {name}.k + 0.5", f"{name}.items.append($e)", f"{name}.items[0] = $e"))


def _with(kind: Kind, **more: str) -> Kind:
    return Kind(**{**vars(kind), **more})


def _changed(kind: Kind, *changes: str, **more: str) -> Kind:
    return _with(Kind(**{**vars(kind), "changes": (*kind.changes, *changes)}), **more)


KINDS: dict[str, Kind] = {
    "global number": Kind(
        module="G@ = $v\ndef set_G@(v):\n    global G@\n    G@ = v\ndef bump_G@():\n    global G@\n    G@ += 0.5\n",
        reads=("G@", "max(G@, 0.5)"), conditions=("G@ > 1.0", "G@ == $v"), changes=("set_G@($v)",
               "globals()['G@'] = $v"),
        rare=("globals()['G@']",), rare_stores=("bump_G@()",)),
    "global function": Kind(
        module="G@ = $f\ndef set_G@(v):\n    global G@\n    G@ = v\n", functions=("G@", "(lambda h: G@(h))"),
        conditions=("G@ is $f",),
        changes=("set_G@($f)", "set_G@(lambda h: F.tanh(h) * $v)",
                 "set_G@(functools.partial(F.leaky_relu, slope=$v))")),
    "global dictionary": Kind(
        module="G@ = {'k': $v, 'l': [$v, $v], 'f': $f}\n",
        reads=("G@['k']", "G@['l'][0]", "sum(G@['l'])", "G@.get('m', $v)", "float(len(G@))", "len(G@['l'])",
               "next(iter(G@.values()))", "sum(v for v in G@.values() if type(v) is float)"),
        conditions=("'m' in G@", "G@['k'] > 1", "G@.get('m') is None", "list(G@)[0] == 'k'"),
        functions=("G@['f']",),
        changes=("G@['k'] = $v", "G@['l'].append($v)", "G@['l'][0] = $v", "G@['m'] = $v", "G@.pop('m', None)",
                 "G@['f'] = $f", "globals().update(G@={'k': $v, 'l': [$v], 'f': $f})", "G@['k'] = G@.pop('k')"),
        rare_stores=("G@['k'] = $e", "G@['l'].append($e)", "G@['h'] = h", "G@.setdefault('m', $e)")),
    "global containers": Kind(
        module="T@ = ($v, ($v, $v))\nS@ = {'a', 'b'}\nD@ = collections.deque([$v, $v], maxlen=2)\nP@ = Point($v, $v)\n",
        reads=("T@[0]", "T@[1][1]", "len(S@)", "D@[0]", "sum(D@)", "P@.a", "P@[1]",
               "[t for t in T@ if t != 1][0:1] and $v"),
        conditions=("'c' in S@", "D@[0] > 1", "T@ == ($v, ($v, $v))", "P@.a is P@.b"),
        changes=("globals()['T@'] = ($v, ($v, $v))", "S@.add('c')", "S@.discard('a')", "D@.append($v)",
                 "globals()['P@'] = Point($v, $v)", "globals()['P@'] = P@._replace(a=$v)"),
        rare_stores=("D@.append($e)", "S@.add('$w')")),
    "global namespace": Kind(
        module="N@ = types.SimpleNamespace(k=$v, inner=argparse.Namespace(k=$v, act='$w'), data=Data($v, [$v]))\n",
        reads=("N@.k", "N@.inner.k", "N@.data.k", "N@.data.many[0]", "float(N@.data)", "vars(N@.inner)['k']",
               "dataclasses.asdict(N@.data)['k']", "getattr(N@, 'late', $v)", "getattr(N@.inner, 'k')"),
        conditions=("N@.inner.act == 'a'", "N@.data == Data($v, [$v])", "N@.inner.act in ('b', 'c')",
                    "N@ == types.SimpleNamespace(k=$v)", "'k=1.5' in repr(N@.data)"),
        functions=("getattr(F, NAMES[N@.inner.act])",),
        changes=("N@.k = $v", "N@.inner.k = $v", "N@.inner.act = '$w'", "N@.data.k = $v", "N@.data.many[0] = $v",
                 "N@.late = $v", "N@.data = Data($v, [$v])", "N@.inner = argparse.Namespace(k=$v, act='$w')"),
        stores=("N@.seen = h",), rare_stores=("N@.data.many.append($e)", "N@.k = $e")),
    "global object": _with(_holder("O@"), module=HOLDER + "O@ = Holder@()\n"),
    "global slots": Kind(
        module="class Slots@:\n    __slots__ = ('k', 'act', 'late')\nB@ = Slots@()\nB@.k, B@.act = $v, $f\n",
        reads=("B@.k", "getattr(B@, 'k')", "getattr(B@, 'late', $v)", "operator.attrgetter('k')(B@)"),
        conditions=("B@.k > 1", "hasattr(B@, 'late')", "B@.act is $f"), functions=("B@.act",),
        changes=("B@.k = $v", "B@.act = $f", "B@.late = $v", "B@.act = functools.partial(F.leaky_relu, slope=$v)"),
        stores=("B@.late = h", "B@.late = $e"), rare_stores=("B@.k += 0.5",)),
    "global data": Kind(
        module="R@ = [np.full(4, k, 'f') for k in (1, 2, 3)]\n"
               "I@ = kusari.iterators.SerialIterator(R@, 2, shuffle=False)\n"
               "V@ = kusari.Variable(np.ones(4, 'f'), name='a')\n",
        reads=("(1.0 + I@.epoch)", "float(len(R@))", "float(I@.batch_size)", "len(V@.name)", "float(V@.shape[0])"),
        conditions=("I@.is_new_epoch", "I@.epoch > 0", "V@.name == 'a'", "V@.requires_grad"),
        changes=("I@.next()", "I@.reset()", "R@.append(R@[0])", "V@.name = '$w'", "V@.array = np.ones(2, 'f')"),
        stores=("V@.name = '$w'",), rare=("float(R@[0][0])", "(1.0 + I@.epoch_detail)", "float(next(I@)[0][0])")),
    "globals of other kinds": Kind(
        module="E@ = Mode.A\nQ@ = fractions.Fraction(1, 2)\nL@ = slice(0, 3)\n"
               "C@ = contextvars.ContextVar('C@', default=$v)\n"
               "X@ = None\nH@ = threading.local()\nH@.k = $v\nW@ = weakref.ref(SHARED)\n",
        reads=("E@.value", "float(Q@)", "C@.get()", "(1.0 if X@ is None else X@)", "H@.k", "W@().k", "SHARED.k"),
        conditions=("E@ is Mode.A", "X@ is None", "Q@ > 1", "L@ == slice(0, 3)"),
        changes=("globals()['E@'] = Mode.B", "globals()['E@'] = Mode.A", "globals()['Q@'] = fractions.Fraction(3, 2)",
                 "C@.set($v)", "globals()['X@'] = $v", "H@.k = $v", "SHARED.k = $v", "globals()['L@'] = slice(1, 3)")),
    "helper": Kind(
        module="def helper@(h, k=$v, *, t=1.0, table={'k': $v}):\n    return h * k * t * table['k']\n"
               "@functools.lru_cache\ndef cached@(n):\n    return helper@.__defaults__[0] * n\n",
        functions=("helper@", "(lambda h: helper@(h, $e))", "functools.partial(helper@, t=$e)"), reads=("cached@(2)",),
        changes=("helper@.__defaults__ = ($v,)", "helper@.__kwdefaults__['t'] = $v", "cached@.cache_clear()",
                 "helper@.__kwdefaults__['table']['k'] = $v",
                 "helper@.__code__ = (lambda h, k, *, t, table: h - k).__code__",
                 "globals()['helper@'] = $f")),
    "closure number": Kind(
        make="c@ = $v\ndef set_c@(v):\n    nonlocal c@\n    c@ = v\n", reads=("c@", "(lambda: c@)()"),
        conditions=("c@ > 1.0", "c@ != $v"), changes=("set_c@($v)",)),
    "closure containers": Kind(
        make="d@ = {'k': $v}\nl@ = [$v, $v]\nf@ = $f\ndef set_f@(v):\n    nonlocal f@\n    f@ = v\n",
        reads=("d@['k']", "l@[0]", "sum(l@)", "max(l@)", "sorted(l@)[0]", "d@.get('m', 1.0)", "float(len(l@))"),
        conditions=("d@['k'] > 1", "l@[0] in l@[1:]", "d@ == {'k': $v}", "any(k > 2 for k in l@)"), functions=("f@",),
        changes=("d@['k'] = $v", "l@[0] = $v", "l@.append($v)", "set_f@($f)", "d@.update(m=$v)", "l@.reverse()"),
        rare_stores=("l@.append($e)", "d@['k'] = $e", "d@['h'] = h")),
    "closure object": _changed(_holder("o@"), "set_o@(Holder@($v))", module=HOLDER,
                               make="o@ = Holder@()\ndef set_o@(v):\n    nonlocal o@\n    o@ = v\n"),
    "attribute number": Kind(
        init="self.a@ = $v\nself.b@ = None\n",
        reads=("self.a@", "(self.b@ or $v)", "getattr(self, 'a@')", "getattr(self, 'a' + str(@))",
               "self.__dict__['a@']"),
        conditions=("self.a@ > 1", "self.b@ is None", "hasattr(self, 'late@')", "not self.b@"),
        changes=("model.a@ = $v", "model.b@ = $v", "model.b@ = None", "setattr(model, 'a@', $v)", "model.late@ = $v",
                 "vars(model)['a@'] = $v", "model.__dict__.pop('late@', None)"),
        stores=("self.b@ = None", "self.b@ = $v", "self.s@ = h", "self.s@ = [h, $e]", "self.s@ = {'h': h}",
                "self.s@ = '$w'",
                "self.s@ = $e", "self.s@ = h.shape", "self.s@ = (h, h)"),
        rare_stores=("self.a@ += 0.5", "self.b@ = float(h.array.sum())", "self.s@ = str(x)")),
    "attribute containers": Kind(
        init="self.l@ = [$v, $v]\nself.d@ = {'k': $v, 'n': {'k': $v}}\nself.p@ = ($v, $v)\nself.act@ = $f\n"
             "self.log@ = []\n",
        reads=("self.l@[0]", "sum(self.l@)", "self.d@['k']", "self.d@['n']['k']", "self.p@[1]", "float(len(self.l@))",
               "self.d@.get('m', 1.0)"),
        conditions=("self.l@[0] > 1", "'m' in self.d@", "self.p@[0] == self.p@[1]", "len(self.log@) == 0"),
        functions=("self.act@",),
        changes=("model.l@[0] = $v", "model.l@.append($v)", "model.d@['k'] = $v", "model.d@['n']['k'] = $v",
                 "model.d@['m'] = $v", "model.p@ = ($v, $v)", "model.act@ = $f", "model.l@ = [$v]",
                 "model.log@.append(1)",
                 "model.d@ = {'k': $v, 'n': {'k': $v}}", "model.act@ = lambda h: F.relu(h) * $v"),
        stores=("self.l@ = [$v, $e]", "self.log@ = []"),
        rare_stores=("self.log@.append($e)", "self.l@[1] = $e", "self.d@['k'] = $e", "self.log@.append(h)")),
    "attribute object": _changed(_holder("self.o@"), "self_o = model.o@; model.o@ = Holder@($v)", module=HOLDER,
                                 init="self.o@ = Holder@()\n"),
    "class": Kind(
        of_class="k@ = $v\ntable@ = {'k': $v}\n@property\ndef prop@(self):\n    return self.k@ * 2\n@staticmethod\n"
                 "def squash@(h):\n    return F.tanh(h)\ndef meth@(self, h):\n    return h * self.k@\n"
                 "@functools.cached_property\n"
                 "def cached@(self):\n    return self.k@\n@classmethod\ndef make@(cls, h):\n    return h * cls.k@\n",
        reads=("self.k@", "type(self).k@", "self.table@['k']", "self.prop@",
               "self.cached@"), conditions=("self.k@ > 1",),
        functions=("self.squash@", "self.meth@", "self.make@"),
        changes=("Model.k@ = $v", "model.k@ = $v", "Model.table@['k'] = $v", "Model.squash@ = staticmethod($f)",
                 "Model.meth@ = lambda self, h: $f(h) * self.k@", "model.meth@ = $f",
                 "model.__dict__.pop('cached@', None)",
                 "Model.prop@ = property(lambda self: $v)", "model.__dict__.pop('k@', None)"),
        rare_stores=("type(self).k@ = $e", "self.table@['k'] = $e")),
    "configuration": Kind(
        module="kusari.config.user_@ = $v\nkusari.config.user_list_@ = [$v]\ndef read@(c=kusari.config):\n"
               "    return c.user_@\n",
        reads=("kusari.config.user_@", "getattr(kusari.config, 'user_@')", "read@()",
               "getattr(kusari.config, f'user_{@}')",
               "sum(kusari.config.user_list_@)"),
        conditions=("kusari.config.user_@ > 1", "kusari.config.train", "getattr(kusari.config, 'tr' + 'ain')"),
        changes=("kusari.config.user_@ = $v", "kusari.config.user_list_@.append($v)", "kusari.config.train = False",
                 "kusari.config.user_list_@ = [$v]", "kusari.config.train = True"),
        rare_stores=("kusari.config.user_@ = $e",)),
    "optimizer": Kind(
        make="held@ = []\n", init="self.opt@ = held@\n",
        reads=("self.opt@[0].lr", "held@[0].hyperparam.lr * 10", "(1.0 + self.opt@[0].epoch)"),
        conditions=("self.first.W.update_rule.enabled", "self.opt@[0].epoch > 0", "self.first.update_enabled"),
        changes=("held@[0].lr = $v * 0.02", "held@[0].hyperparam.lr = 0.01", "held@[0].new_epoch()",
                 "held@[0].lr = $v * 0.1",
                 "model.first.disable_update()", "model.first.enable_update()",
                 "model.first.W.update_rule.hyperparam.lr = 0.05"),
        rare=("(1.0 + 0.1 * self.opt@[0].t)",)),
    "parameters": Kind(
        init="self.layers@ = [self.first, self.second]\n",
        reads=("float(len(list(self.params())))", "len(self.first.W.name)", "0.05 * self.count_params()",
               "len(self.layers@)",
               "len(list(self.children()))", "self.first.W.shape[0]"),
        conditions=("self.first.b is None", "self.first.W.name == 'W'", "self.first.name == 'first'"),
        functions=("self.layers@[-1]", "(lambda h: functools.reduce(lambda a, l: F.tanh(l(a)), self.layers@, h))",
                   "(lambda h: sum([l(h) for l in self.layers@]))",
                   "(lambda h: h + sum(F.sum(p) for p in self.params()))"),
        changes=("model.layers@.append(model.first)", "model.layers@.pop()", "model.first.W.name = '$w'",
                 "model.first.W.array = model.first.W.array * 0.5", "model.first.W.array[...] *= 0.5",
                 "model.first.name = '$w'",
                 "model.add_param('late@', (2,), initializer=$v)", "model.first = L.Linear(4, 4)",
                 "model.layers@[0] = L.Linear(4, 4)", "model.first.forward = lambda h: model.second(h) * $v"),
        stores=("self.second.mark@ = $e",), rare_stores=("self.second.disable_update()",)),
    "arrays": Kind(
        init="self.r@ = np.full(4, $v, 'f')\nself.add_persistent('n@', np.full(4, $v, 'f'))\n"
             "self.add_persistent('step@', 1)\n",
        reads=("float(self.step@)",),
        functions=("(lambda h: h * self.n@)", "(lambda h: h + F.sum(self.n@))"), conditions=("self.step@ > 1",),
        changes=("model.r@[0] = $v", "model.n@[...] = $v", "model.n@ = np.full(4, $v, 'f')", "model.step@ += 1",
                 "model.r@ = np.full(4, $v, 'f')"),
        rare=("float(self.r@[0])", "float(self.n@[1])", "float(self.r@.sum())"), rare_stores=("self.n@ += 1",
              "self.step@ += 1")),
    "what goes on": Kind(
        make="it@ = itertools.count(1)\nrs@ = np.random.RandomState(1)\n", init="self.it@ = iter(range(1, 99))\n",
        reads=("1.0",), changes=("next(it@)", "rs@.rand()", "np.random.rand()", "random.random()"),
        rare=("next(it@)", "next(self.it@)", "rs@.rand()", "np.random.rand()", "random.random()", "np.random.randn()"),
        rare_stores=("print('called')", "warnings.warn('careful')")),
}

# ``h`` is what a body computes. More likely ones stand there more than once.
STATEMENTS: tuple[str, ...] = (
    "h = h * ($e)", "h = h * ($e)", "h = F.tanh(h) + $e", "h = F.tanh(h * $e)", "h = $g(h)", "h = $g(h)", "h = $g(h)",
    "if $b:\n    h = F.relu(h) * $e\nelse:\n    h = F.tanh(h)", "if $b:\n    h = $g(h)",
    "h = h * 2.0 if $b else F.tanh(h)",
    "h = F.sigmoid(h) if $b and $b else h - $e", "h = sum([h * k for k in ($e, $e)])",
    "for k in [$e, $e]:\n    if k > 1:\n        h = F.tanh(h) + k",
    "for link in self.children():\n    h = F.tanh(link(h))", "h = [link(h) for link in (self.first, self.second)][-1]",
    "try:\n    h = h * {'k': $e}['k' if $b else 'm']\nexcept KeyError:\n    h = h + $e",
    "try:\n    h = h * self.missing\nexcept AttributeError:\n    h = h * $e",
    "with kusari.using_config('user_scope', $e):\n    h = h * kusari.config.user_scope",
    "with kusari.using_config('train', $b):\n    h = F.dropout(h, 0.3)", "h = F.dropout(h, 0.4)",
    "h = F.dropout(h, 0.4)",
    "h = self.second(F.tanh(h))", "h = F.concat([h, h * $e])[:, :4]", "h = (lambda a, k=$e: a * k)(h)",
    "h = h * functools.reduce(lambda a, b: a + b, [$e, $e])", "h = h * dict(a=$e, b=2.0).get('a')",
    "parts = [h, h * $e]\nparts.append(F.tanh(h))\nh = sum(parts[1:])", "h = h + np.tanh(x) * $e",
    "h = h * (x.shape[0] - $e)",
    "h = h * max($e, $e) if len(x) == 3 else h", "h = h * float(format(float($e), '.2f'))",
    "h = h * round(float($e), 2)",
    "match $e:\n    case 1.0:\n        h = F.relu(h)\n    case 2.0 | 1.5:\n        h = h * 2.0\n    case _:\n"
    "        h = F.tanh(h)",
    "total = 0.0\nwhile total < 3:\n    total += 1 + abs($e)\nh = h * total",
    "h = F.where(np.ones((3, 4), bool), h, h * $e)", "h = h * np.float32($e)", "del x\nh, x = F.tanh(h), h",
    "with kusari.no_backprop_mode():\n    k = F.tanh(h) * $e\nh = h + k", "assert $e != 77.0, 'never'\nh = h * 1.5",
)
RARE_STATEMENTS: tuple[str, ...] = (
    "h = h * float(h.array.mean())", "if float(abs(h.array).sum()) > 5:\n    h = F.tanh(h)",
    "h = h * float(np.asarray(x).mean())",
    "x[0, 0] = 1\nh = h * 2", "h.name = 'h'", "raise_if($b, 'on purpose')",
)
RESULTS: tuple[str, ...] = (
    "h", "h", "h", "h", "(h, $e)", "{'h': h, 'k': $e}", "[h, F.sum(h)]", "Point(h, $e)", "(h, h)",
    "(h, [h, '$w'])", "(h, None)",
)

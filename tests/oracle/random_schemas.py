"""Random JSON Schemas of the keywords that `athanor generate --schema` knows. Those that no value meets are among them."""
import random

WORDS = ["name", "age", "a b", "ü", "日本", "quote\"d", "back\\slash", "x/y", "~", "id", "na", "names", "", "list", "é", "😀", "A", "long_property_name"]
FORMATS = ["date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "hostname", "email", "uri"]
PATTERNS = ["^[a-z]+$", "^\\d{3}-\\d{4}$", "abc", "^(foo|bar)*$", "^[^a-z]{2,5}$", "^\\w+@\\w+\\.com$", "^.{3}$", "^$",
            "^a?b*c+$", "^[\\s\\S]{1,4}$", "x$", "^(?:[A-Z][a-z]+ ){1,3}end$", "^\\D\\W?$", "^[äöü]{2}$", "a|^b$|c", "^[\"\\\\\\n]{2,3}$"]


class Schemas:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = {}

    def whole(self):
        names = ["node", "leaf"] if self.r.random() < 0.3 else []
        self.names = names
        root = self.schema(3)
        if root is True:
            root = {}
        if names:
            # what refers to itself can end: the reference is optional
            root["$defs"] = {
                "leaf": self.scalar(),
                "node": {"type": "object", "properties": {"value": self.scalar(), "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                                                          "all": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
                         "required": self.some(["value", "next"]), "additionalProperties": self.r.random() < 0.3},
            }
        return root

    def some(self, items):
        return [x for x in items if self.r.random() < 0.5]

    def maybe(self, chance, schema, **keywords):
        for k, make in keywords.items():
            if self.r.random() < chance:
                schema[k] = make()
        return schema

    def value(self, depth=1):
        kinds = [None, True, False, 0, 7, -3, 2.5, -0.125, 1e20, "", "word", "ü\"\\\n", "😀"]
        if depth and self.r.random() < 0.2:
            return [self.value(0) for _ in range(self.r.randint(0, 3))]
        if depth and self.r.random() < 0.2:
            return {self.r.choice(WORDS): self.value(0) for _ in range(self.r.randint(0, 3))}
        return self.r.choice(kinds)

    def string(self):
        kind = self.r.random()
        lo = self.r.randint(0, 6)
        s = {"type": "string"}
        if kind < 0.2:
            s["format"] = self.r.choice(FORMATS)
        elif kind < 0.5:
            s["pattern"] = self.r.choice(PATTERNS)
            self.maybe(0.2, s, minLength=lambda: lo, maxLength=lambda: lo + self.r.randint(0, 9))
        else:
            self.maybe(0.5, s, minLength=lambda: lo, maxLength=lambda: lo + self.r.randint(0, 30))
        return s

    def bound(self, whole):
        if whole:
            return self.r.choice([0, 1, -1, 9, 10, 99, 100, -10, 12345, -999, self.r.randint(-10**6, 10**6)])
        return self.r.choice([0, 0.5, -0.5, 1, 0.1, 10, -2.25, 3.14159, 1e-5, 100.75, round(self.r.uniform(-1000, 1000), self.r.randint(0, 5))])

    def number(self):
        whole = self.r.random() < 0.5
        s = {"type": "integer" if whole else "number"}
        lo = self.bound(whole)
        hi = lo + (self.r.randint(0, 500) if whole else round(self.r.uniform(0.001, 50), 3))
        if self.r.random() < 0.4:
            s[self.r.choice(["minimum", "exclusiveMinimum"])] = lo
        if self.r.random() < 0.4:
            s[self.r.choice(["maximum", "exclusiveMaximum"])] = hi
        if self.r.random() < 0.15:
            s["multipleOf"] = self.r.choice([1, 2, 5, 7, 10, 100, 365])
        return s

    def scalar(self):
        kind = self.r.random()
        if kind < 0.35:
            return self.string()
        if kind < 0.65:
            return self.number()
        if kind < 0.8:
            return {"enum": [self.value() for _ in range(self.r.randint(1, 6))]}
        if kind < 0.85:
            return {"const": self.value()}
        return {"type": self.r.choice(["boolean", "null", ["string", "null"], ["integer", "boolean"], ["number", "string"]])}

    def object(self, depth):
        names = self.r.sample(WORDS, self.r.randint(0, 6))
        s = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        required = self.some(names)
        if self.r.random() < 0.1:
            required.append("not described")
        if required or self.r.random() < 0.5:
            s["required"] = required
        kind = self.r.random()
        if kind < 0.5:
            s["additionalProperties"] = False
        elif kind < 0.7:
            s["additionalProperties"] = self.schema(depth - 1)
        n = self.r.randint(len(required), len(names) + 2)
        return self.maybe(0.15, s, minProperties=lambda: min(n, len(names)), maxProperties=lambda: n)

    def array(self, depth):
        s = {"type": "array"}
        lo = self.r.randint(0, 3)
        self.maybe(0.4, s, items=lambda: self.schema(depth - 1), minItems=lambda: lo, maxItems=lambda: lo + self.r.randint(0, 4))
        self.maybe(0.2, s, prefixItems=lambda: [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))])
        return s

    def choice(self, depth):
        branches = [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]
        kind = self.r.random()
        if kind < 0.6:
            return {"anyOf": branches}
        if kind < 0.8:
            return {"allOf": branches + ([{"type": "object"}] if self.r.random() < 0.3 else [])}
        told = [{"type": "object", "properties": {"kind": {"const": f"k{i}"}, "of": b}, "required": ["kind"]} for i, b in enumerate(branches)]
        return {"oneOf": told}

    def schema(self, depth):
        kind = self.r.random()
        if kind < 0.02:
            return True
        if kind < 0.04:
            return {}
        if self.names and kind < 0.15:
            return {"$ref": "#/$defs/" + self.r.choice(self.names)}
        if depth <= 0 or kind < 0.35:
            s = self.scalar()
        elif kind < 0.7:
            s = self.object(depth)
        elif kind < 0.85:
            s = self.array(depth)
        else:
            s = self.choice(depth)
        return self.maybe(0.1, s, title=lambda: "a title", description=lambda: "what it is", default=lambda: None)
